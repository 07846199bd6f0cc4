r"""The pattern of ListTransactions, which has to match the whole transactional id.

Kafka uses Java's regular expressions, so its broker may backtrack for years on `(a+)+b`. Here an expression
becomes a nondeterministic automaton, and a name is read once with the set of possible states: matching never
takes longer than the expression's length times the name's. What is supported means what it means in Java:

- a character; `\` before one that is no letter or digit; `\t` `\n` `\r` `\f`; `.`, any but a line terminator;
- `\d` `\w` `\s` and `\D` `\W` `\S`, of ASCII, and classes such as `[a-z_]` and `[^.]`;
- groups `( )` and `(?: )`, alternatives, `*` `+` `?` `{2}` `{2,}` `{2,5}`, also with a `?` behind;
- `^` at the beginning and `$` at the end, where they are redundant.

All else is rejected, as is what Java rejects: look-around, back-references, `a*+`, flags, names, `\p`,
classes within classes. So is an expression of more than `MAX_STATES` states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

MAX_STATES: Final = 2000
MAX_CACHED: Final = 10_000
"""Maximum number of cached transitions of the automaton."""

_MAX_DEPTH: Final = 100
_LINE_ENDS: Final = frozenset("\n\r\u0085\u2028\u2029")
_DIGITS: Final = frozenset("0123456789")
_WORD: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

CharTest = Callable[[str], bool]
"""Returns True if a character leads from a state to the next one."""

Fragment = tuple[int, int]
"""A part of the automaton: its first and last state."""


class InvalidPattern(Exception):
    """Raised for an expression that is malformed or not supported."""


class Pattern:
    """A compiled regular expression, as a nondeterministic automaton with a cache of transitions."""

    def __init__(self, text: str) -> None:
        """Compile an expression. Raises `InvalidPattern`."""
        reader = _Reader(text)
        first, self._last = reader.parse()
        self._steps, self._epsilons = reader.steps, reader.epsilons
        self._first = self._closure((first,))
        self._cache: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Return True if the expression matches the whole name."""
        current = self._first
        for char in name:
            after = self._cache.get((current, char))
            if after is None:
                after = self._advance(current, char)
            current = after
            if not current:
                return False
        return self._last in current

    def _advance(self, current: frozenset[int], char: str) -> frozenset[int]:
        found = self._closure(
            step[1] for state in current if (step := self._steps.get(state)) and step[0](char)
        )
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[current, char] = found
        return found

    def _closure(self, states: Iterable[int]) -> frozenset[int]:
        """Return all states that are reachable from `states` without reading a character."""
        found: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state not in found:
                found.add(state)
                pending += self._epsilons[state]
        return frozenset(found)


class _Reader:
    """A parser that turns an expression, from left to right, into an automaton."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.steps: dict[int, tuple[CharTest, int]] = {}
        self.epsilons: list[list[int]] = []
        self._depth = 0

    def parse(self) -> Fragment:
        if self.text.startswith("^"):
            self.at = 1
        made = self._alternatives()
        if self.at < len(self.text):
            self._refuse("Unmatched closing ')'")
        return made

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidPattern(f"{why} near index {self.at}")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            self._refuse("Unexpected end")
        self.at += 1
        return char

    def _state(self) -> int:
        if len(self.epsilons) >= MAX_STATES:
            self._refuse("The expression is too large")
        self.epsilons.append([])
        return len(self.epsilons) - 1

    # --- parts ---

    def _alternatives(self) -> Fragment:
        first, last = self._state(), self._state()
        while True:
            begin, end = self._sequence()
            self.epsilons[first].append(begin)
            self.epsilons[end].append(last)
            if self._peek() != "|":
                return first, last
            self.at += 1

    def _sequence(self) -> Fragment:
        first = last = self._state()
        while (char := self._peek()) and char not in "|)":
            if char == "$" and self.at == len(self.text) - 1 and not self._depth:
                self.at += 1
                break
            begin, end = self._repeated()
            self.epsilons[last].append(begin)
            last = end
        return first, last

    def _repeated(self) -> Fragment:
        start = self.at
        made = self._atom()
        stop = self.at
        least, most = self._counts()
        if (least, most) == (1, 1):
            return made
        if self._peek() == "?":
            self.at += 1
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse(f"'{self._peek()}' after a repetition is not understood")
        return self._times(start, stop, made, least, most)

    def _times(self, start: int, stop: int, made: Fragment, least: int, most: int | None) -> Fragment:
        """Return a fragment of the automaton that repeats the part `text[start:stop]` of the expression.

        `made`: the fragment of its first copy; `least`, `most`: how often it may occur, `most` is None
        without a limit."""
        first = last = self._state()
        rest = self.at
        unused: Fragment | None = made
        for count in range(max(least, 1) if most is None else most):
            if unused is None:
                self.at = start
                unused = self._atom()
                assert self.at == stop
            begin, end = unused
            unused = None
            after = self._state()
            self.epsilons[last].append(begin)
            self.epsilons[end].append(after)
            if count >= least:
                self.epsilons[last].append(after)
            if most is None and count >= least - 1:
                self.epsilons[end].append(begin)
            last = after
        self.at = rest
        return first, last

    def _counts(self) -> tuple[int, int | None]:
        char = self._peek()
        if char in ("*", "+", "?"):
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return 1, 1
        self.at += 1
        least = self._number()
        most: int | None = least
        if self._peek() == ",":
            self.at += 1
            most = None if self._peek() == "}" else self._number()
        if self._take() != "}":
            self._refuse("Unclosed counted closure")
        if most is not None and most < least:
            self._refuse("Illegal repetition range")
        return least, most

    def _number(self) -> int:
        digits = ""
        while self._peek() and self._peek() in _DIGITS:
            digits += self._take()
        if not digits or len(digits) > 4:
            self._refuse("Illegal repetition")
        return int(digits)

    # --- atoms ---

    def _atom(self) -> Fragment:
        char = self._take()
        if char == "(":
            return self._group()
        if char in "*+?{":
            self._refuse(f"Dangling meta character '{char}'")
        if char in "^$":
            self._refuse(f"'{char}' is not understood here")
        if char == ".":
            return self._step(lambda c: c not in _LINE_ENDS)
        if char == "[":
            return self._step(self._class())
        if char == "\\":
            return self._step(self._escaped())
        return self._step(char.__eq__)

    def _step(self, accepts: CharTest) -> Fragment:
        begin, end = self._state(), self._state()
        self.steps[begin] = accepts, end
        return begin, end

    def _group(self) -> Fragment:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._peek() == "?":
            self._refuse("This kind of group is not understood")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse("The expression is too deep")
        made = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            self._refuse("Unclosed group")
        self.at += 1
        return made

    def _escaped(self) -> CharTest:
        char = self._take()
        among = _CLASSES.get(char.lower())
        if among is not None:
            return among.__contains__ if char.islower() else lambda c: c not in among
        return self._letter(char).__eq__

    def _letter(self, char: str) -> str:
        """Return the character that `\\` and `char` stand for."""
        if char in _LETTERS:
            return _LETTERS[char]
        if char.isascii() and char.isalnum():
            self._refuse(f"'\\{char}' is not understood")
        return char

    def _class(self) -> CharTest:
        negated = self._peek() == "^"
        self.at += negated
        parts: list[CharTest] = []
        while self._peek() != "]" or not parts:
            parts.append(self._of_a_class())
        self.at += 1
        return lambda c: any(accepts(c) for accepts in parts) is not negated

    def _of_a_class(self) -> CharTest:
        char = self._take()
        if char in "[]" or (char == "&" and self._peek() == "&"):
            self._refuse(f"'{char}' within a class is not understood")
        if char == "\\":
            if self._peek().lower() in _CLASSES:
                return self._escaped()
            char = self._letter(self._take())
        if self._peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return char.__eq__
        self.at += 1
        last = self._take()
        if last == "[":
            self._refuse("'[' within a class is not understood")
        if last == "\\":
            last = self._letter(self._take())
        if last < char:
            self._refuse("Illegal character range")
        return lambda c: char <= c <= last
