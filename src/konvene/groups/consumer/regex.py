"""Regular expressions that members subscribe to: which are valid, and which topics they match.

The syntax is RE2's, whose matching time is at most the length of the expression times that of the name. An
expression matches whole names. There are two implementations:

- google-re2 (the extra `re2`), if it is installed. It is RE2 in C++, where Kafka uses RE2/J. On 17,000 random
  expressions they differed little: RE2/J rejects a repetition after a literal `{` (`a{*`) and two groups of
  one name, and accepts an escaped character beyond ASCII; these differences remain. It rejects `\\C`, and
  so does this module.
- the fallback below, if it is not: literals, `\\` before punctuation, `.`, classes (`[a-z_]`, `[^.]`) and `*`
  or `+` after one of those. `^` may be first and `$` last, where they have no effect. Anything else is
  rejected with the name of the extra: alternatives, groups, `?`, `{2}`, `\\d`, `[[:alpha:]]`. What it accepts
  has RE2's meaning. It reads a name once, with the set of possible positions, and never backtracks.

Error messages are Kafka's, except for an unexpected `)`, for which RE2/J reports an internal error.

An expression that Kafka accepts is rejected if it is too expensive to compile. The compile time of google-re2
grows with the square of the number of optional parts in a row, and blocks the broker: `x{0,1000}` forty times
is 360 characters and takes about a second. So an expression with many optional parts may have some 10,000
instructions; one without (a list of names), 170,000.

Not done here: authorization, and caching of matches. google-re2 itself caches the last 128 expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final, Protocol

from konvene.errors import Errors
from konvene.shard.errors import GroupError

# Limits of one expression.

MEMORY_BYTES: Final = 2 << 20
"""Memory of a compiled expression: about 170,000 instructions, as for a list of 4,000 names of 30
characters."""
LENGTH_LIMIT: Final = 200_000
"""Maximum length in characters. A longer expression has too many instructions, which is slower to detect."""
BRANCHING_MEMORY_BYTES: Final = 128 << 10
"""Memory of a compiled expression with many optional parts: about 10,000 instructions."""
BRANCHING_LENGTH_LIMIT: Final = 4096
MANY_BRANCHES: Final = 64
_BRANCH: Final = re.compile(r"[?*]|\(\||\|\||\|\)|\(\)")
"""Optional and alternative parts. Counted repetitions are searched separately."""

# Limits of expressions that are matched together.

SET_MEMORY_BYTES: Final = 16 << 20
SET_INSTRUCTIONS: Final = 50_000
SMALL_INSTRUCTIONS: Final = 1000
"""An expression with at most this number of instructions is matched together with others."""

RE2J_MESSAGES: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": "expression too large",
}
"""RE2/J's error messages, by those of google-re2."""

_ANY_BYTE: Final = re.compile(r"(?:[^\\]|\\Q.*?(?:\\E|\Z)|\\[^QC])*+\\C", re.DOTALL)
"""`\\C`, neither quoted nor half of an escaped backslash, in an expression that is otherwise valid."""


def validate(pattern: str, field: str = "SubscribedTopicRegex") -> None:
    """Check that the expression is valid. Raises INVALID_REGULAR_EXPRESSION.

    `field`: the request's field with the expression, for the error message."""
    re2 = _google_re2()
    try:
        if re2 is None:
            _Fallback.parse(pattern)
        else:
            _compile(re2, pattern)
    except _Invalid as invalid:
        raise GroupError(
            Errors.INVALID_REGULAR_EXPRESSION,
            f"{field} `{pattern}` is not a valid regular expression: {invalid}.",
        ) from None


def matching(patterns: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, by expression, the names that each expression matches as a whole.

    An invalid expression matches nothing: it was accepted by Kafka, or by a broker with google-re2."""
    found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
    names = tuple(names)
    re2 = _google_re2()
    if re2 is None:
        _match_with_fallback(found, names)
    else:
        _match_with_re2(re2, found, names)
    return {pattern: frozenset(matched) for pattern, matched in found.items()}


class _Invalid(Exception):
    """Raised for an invalid expression; the message is the reason."""


def _google_re2() -> ModuleType | None:
    """Return the module `re2` if it is google-re2's, else None: other packages have a module `re2`, too."""
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(re2, "Options") and hasattr(re2, "Set") else None


# google-re2.


class _Compiled(Protocol):
    """An expression that google-re2 has compiled."""

    @property
    def programsize(self) -> int: ...

    def fullmatch(self, text: str, /) -> object | None: ...


def _compile(re2: ModuleType, pattern: str) -> _Compiled:
    """Return the compiled expression. Raises `_Invalid`."""
    branches = "{" in pattern or sum(1 for _ in _BRANCH.finditer(pattern)) > MANY_BRANCHES
    if len(pattern) > (BRANCHING_LENGTH_LIMIT if branches else LENGTH_LIMIT):
        raise _Invalid("expression too large")
    options = _options(re2, BRANCHING_MEMORY_BYTES if branches else MEMORY_BYTES)
    try:
        compiled: _Compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise _Invalid("invalid UTF-8") from None
    except re2.error as error:
        raise _Invalid(_message(error)) from None
    if _ANY_BYTE.match(pattern):
        raise _Invalid("invalid escape sequence")
    return compiled


def _options(re2: ModuleType, max_mem: int) -> object:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = max_mem
    return options


def _message(error: Exception) -> str:
    """Return RE2/J's message for an error of google-re2, whose own is bytes such as `missing ]: [a-z`."""
    detail = error.args[0] if error.args else ""
    text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    code = text.partition(": ")[0]
    return RE2J_MESSAGES.get(code, code)


def _match_with_re2(re2: ModuleType, found: dict[str, set[str]], names: tuple[str, ...]) -> None:
    """Add the names that each expression matches to its set in `found`.

    Small expressions are matched together, large ones one by one; an invalid one matches nothing."""
    batch: list[tuple[str, _Compiled]] = []
    size = 0
    for pattern, matched in found.items():
        try:
            compiled = _compile(re2, pattern)
        except _Invalid:
            continue
        if compiled.programsize > SMALL_INSTRUCTIONS:
            matched.update(name for name in names if compiled.fullmatch(name))
            continue
        batch.append((pattern, compiled))
        size += compiled.programsize
        if size > SET_INSTRUCTIONS:
            _match_as_set(re2, batch, found, names)
            batch, size = [], 0
    _match_as_set(re2, batch, found, names)


def _match_as_set(
    re2: ModuleType, compiled: list[tuple[str, _Compiled]], found: dict[str, set[str]], names: tuple[str, ...]
) -> None:
    """Add the names that each of the `compiled` expressions matches to its set in `found`, in one pass.

    A set that runs out of memory reports no match at all. Therefore it also contains an expression that
    matches everything: if that is not reported, the expressions are tried one by one."""
    if not compiled:
        return
    pattern_set = re2.Set.FullMatchSet(_options(re2, SET_MEMORY_BYTES))
    everything = pattern_set.Add("(?s).*")
    rows = {pattern_set.Add(pattern): found[pattern] for pattern, _ in compiled}
    try:
        pattern_set.Compile()
    except re2.error:
        pattern_set = None
    for name in names:
        hits = (pattern_set.Match(name) if pattern_set else None) or ()
        if everything in hits:
            for hit in hits:
                if hit != everything:
                    rows[hit].add(name)
        else:
            for pattern, expression in compiled:
                if expression.fullmatch(name):
                    found[pattern].add(name)


# The fallback.

PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
"""Characters that may be escaped, and then stand for themselves."""

UNSUPPORTED: Final = {
    "?": "`?`",
    "|": "an alternative (`|`)",
    "(": "a group (`(`)",
    ")": "a group (`)`)",
    "{": "a counted repetition (`{`)",
    "^": "`^` after the beginning",
    "$": "`$` before the end",
}
"""Syntax that only RE2 supports, with its name in error messages."""


@dataclass(frozen=True, slots=True)
class _Atom:
    """A part of an expression that matches one character, or any number of them if `is_repeated`.

    The character is in one of the `ranges`, or in none of them if `negated`."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False
    is_repeated: bool = False

    def accepts(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


@dataclass(slots=True)
class _Fallback:
    """An expression as a sequence of atoms: a nondeterministic automaton whose state i has matched i atoms.

    The set of reached states is an integer with one bit per state. For each character, states whose atom
    accepts it remain if the atom is repeated, and otherwise advance by one. Then repeated atoms are skipped,
    also several in a row: log2(n) shifts for n of them (`_skip_steps`).
    """

    atoms: tuple[_Atom, ...]
    _repeated: int = field(init=False)
    _skip_steps: tuple[tuple[int, int], ...] = field(init=False)
    _accepting: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._repeated = _bits(atom.is_repeated for atom in self.atoms)
        skip_steps, sources, shift = [], self._repeated << 1, 1
        while sources:
            skip_steps.append((sources, shift))
            sources &= sources << shift
            shift *= 2
        self._skip_steps = tuple(skip_steps)

    @classmethod
    def parse(cls, pattern: str) -> _Fallback:
        """Return the parsed expression. Raises `_Invalid` with the unsupported syntax."""
        if len(pattern) > BRANCHING_LENGTH_LIMIT:
            raise _needs_re2(f"one of more than {BRANCHING_LENGTH_LIMIT} characters")
        return cls(tuple(_atoms(pattern)))

    def matches(self, name: str) -> bool:
        positions = self._skip_repeated(1)
        for char in name:
            accepted = positions & self._accepted(char)
            if not accepted:
                return False
            positions = self._skip_repeated((accepted & self._repeated) | ((accepted & ~self._repeated) << 1))
        return bool(positions >> len(self.atoms))

    def _skip_repeated(self, positions: int) -> int:
        """Return the given states and those that can be reached from them by skipping repeated atoms."""
        for sources, shift in self._skip_steps:
            positions |= sources & (positions << shift)
        return positions

    def _accepted(self, char: str) -> int:
        if char not in self._accepting:
            self._accepting[char] = _bits(atom.accepts(char) for atom in self.atoms)
        return self._accepting[char]


def _match_with_fallback(found: dict[str, set[str]], names: tuple[str, ...]) -> None:
    for pattern, matched in found.items():
        try:
            expression = _Fallback.parse(pattern)
        except _Invalid:
            continue
        matched.update(name for name in names if expression.matches(name))


def _bits(flags: Iterable[bool]) -> int:
    return int("".join("1" if flag else "0" for flag in flags)[::-1] or "0", 2)


def _needs_re2(feature: str) -> _Invalid:
    return _Invalid(f"{feature} needs google-re2, which is not installed here (pip install 'konvene[re2]')")


def _atoms(pattern: str) -> Iterator[_Atom]:
    """Yield the atoms of an expression; `x+` is `x` and `x*`."""
    index, end = 0, len(pattern)
    while index < end:
        if (index == 0 and pattern[index] == "^") or (index == end - 1 and pattern[index] == "$"):
            index += 1
            continue
        atom, index = _atom(pattern, index)
        sign = pattern[index : index + 1]
        if sign not in ("*", "+"):
            yield atom
            continue
        index += 1
        if pattern[index : index + 1] in ("*", "+"):
            raise _Invalid("invalid nested repetition operator")
        if sign == "+":
            yield atom
        yield _Atom(atom.ranges, atom.negated, is_repeated=True)


def _atom(pattern: str, index: int) -> tuple[_Atom, int]:
    """Return the atom at an index, without its repetition, and the index after it."""
    char = pattern[index]
    if char == ".":
        return _Atom((("\n", "\n"),), negated=True), index + 1
    if char == "[":
        return _class(pattern, index)
    if char in "*+":
        if pattern[:index] == "^":
            raise _needs_re2(f"`^{char}`")
        raise _Invalid("missing argument to repetition operator")
    if char in UNSUPPORTED:
        raise _needs_re2(UNSUPPORTED[char])
    char, index = _char(pattern, index)
    return _Atom(((char, char),)), index


def _class(pattern: str, index: int) -> tuple[_Atom, int]:
    """Return the class `[...]` at an index, and the index after it.

    A `]` at its beginning, and a `-` at its beginning, end or after a range, stand for themselves."""
    index += 1
    negated = pattern[index : index + 1] == "^"
    index += negated
    first, ranges = index, []
    while index == first or pattern[index : index + 1] != "]":
        if pattern.startswith("[:", index):
            raise _needs_re2("a named class (`[:`)")
        low, index = _char(pattern, index)
        high = low
        if pattern[index : index + 1] == "-" and pattern[index + 1 : index + 2] != "]":
            high, index = _char(pattern, index + 1)
        if high < low:
            raise _Invalid("invalid character class range")
        ranges.append((low, high))
    return _Atom(tuple(ranges), negated), index + 1


def _char(pattern: str, index: int) -> tuple[str, int]:
    """Return the possibly escaped character at an index, and the index after it."""
    if index >= len(pattern):
        raise _Invalid("missing closing ]")
    char = pattern[index]
    if "\ud800" <= char <= "\udfff":
        raise _Invalid("invalid UTF-8")
    if char != "\\":
        return char, index + 1
    escaped = pattern[index + 1 : index + 2]
    if not escaped:
        raise _Invalid("trailing backslash at end of expression")
    if escaped not in PUNCTUATION:
        raise _needs_re2(f"`\\{escaped}`")
    return escaped, index + 2
