"""Kerberos names, and the rules that make short names of them (`sasl.kerberos.principal.to.local.rules`).

As Kafka's `KerberosName`, `KerberosShortNamer` and `KerberosRule`. A name is `primary@REALM` or
`primary/instance@REALM`. Rules are tried in order, and the first that applies gives the name of the
principal:

- `DEFAULT`: the primary, if the realm is the default realm of this machine.
- `RULE:[n:format](match)s/from/to/g/L`: applies to names with `n` components. `format` has `$0` for the
  realm, `$1` and `$2` for the components; the text must match `match` as a whole. Then the first match of
  `from` is replaced, with `g` all of them. `L` and `U` change the case. All parts after the bracket are
  optional.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["KerberosName", "ShortNamer"]

MAX_NAME_LENGTH: Final = 4_096
"""Longest name that rules are applied to; patterns may backtrack where google-re2 is not installed."""

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_REPLACEMENT: Final = re.compile(r"\\(.)|\$([0-9]+)|([\\$])", re.DOTALL)
_NOT_SIMPLE: Final = re.compile("[/@]")


class KerberosName(NamedTuple):
    """A name of at most two components, and its realm, which is None if the name has none."""

    primary: str
    instance: str | None
    realm: str | None

    @classmethod
    def parse(cls, name: str) -> KerberosName:
        """Return the parts of a name. Raises ValueError if it is malformed."""
        match = _NAME.fullmatch(name)
        if match is not None:
            return cls(match[1], match[2], match[3])
        if "@" in name:
            raise ValueError(f"Malformed Kerberos name: {name}")
        return cls(name, None, None)


class ShortNamer:
    """The mapping of Kerberos names to names of principals, of the rules in a broker's settings."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Parse the rules; `default_realm` is empty if this machine has none. Raises ValueError with
        Kafka's message if a rule is invalid."""
        self._rules = tuple(_parse(rule, default_realm) for rule in rules)

    def __repr__(self) -> str:
        return f"<short names by {', '.join(map(str, self._rules)) or 'no rules'}>"

    def short_name(self, name: str) -> str:
        """Return the name of the principal. Raises ValueError if the name is malformed, if no rule
        applies, or if the rule's result still has a component or a realm."""
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(f"Malformed Kerberos name of {len(name)} characters")
        parsed = KerberosName.parse(name)
        if parsed.realm is None:
            return parsed.primary
        parameters = [parsed.realm, parsed.primary]
        if parsed.instance is not None:
            parameters.append(parsed.instance)
        for rule in self._rules:
            short = rule.apply(parameters)
            if short is not None:
                return short
        raise ValueError(f"No rules apply to {name}, rules [{', '.join(map(str, self._rules))}]")


class _Default(NamedTuple):
    """The rule `DEFAULT`."""

    realm: str

    def __str__(self) -> str:
        return "DEFAULT"

    def apply(self, parameters: Sequence[str]) -> str | None:
        return _simple(parameters[1], self) if parameters[0] == self.realm else None


class _Rule(NamedTuple):
    """A rule with a format; patterns are compiled, and None where the rule has none."""

    text: str
    components: int
    format: str
    match: Any
    pattern: Any
    expand: Callable[[Any], str] | None
    """Returns the replacement of a match of `pattern`."""
    replaces_all: bool
    case: str

    def __str__(self) -> str:
        return self.text

    def apply(self, parameters: Sequence[str]) -> str | None:
        """Return the short name, None if the rule does not apply; `parameters`: realm and components."""
        if len(parameters) - 1 != self.components:
            return None
        name = _PARAMETER.sub(lambda found: self._parameter(found[1], parameters), self.format)
        if self.match is not None:
            found = self.match.fullmatch(name)
            if found is None:
                return None
        if self.pattern is not None:
            name = self._substituted(name)
        name = _simple(name, self)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _parameter(self, digits: str, parameters: Sequence[str]) -> str:
        if not digits:
            raise ValueError("bad format in username mapping in ")
        number = int(digits)
        if number >= len(parameters):
            raise ValueError(
                f"index {number} from {self.format} is outside of the valid range 0 to {len(parameters) - 1}"
            )
        return parameters[number]

    def _substituted(self, name: str) -> str:
        assert self.expand is not None
        parts: list[str] = []
        end, last = 0, None
        for found in self.pattern.finditer(name):
            if found.span() == last:  # google-re2 finds an empty match at the end twice.
                break
            parts += name[end : found.start()], self.expand(found)
            last = found.span()
            end = found.end()
            if not self.replaces_all:
                break
        return "".join((*parts, name[end:]))


def _simple(name: str, rule: object) -> str:
    if _NOT_SIMPLE.search(name):
        raise ValueError(f"Non-simple name {name} after auth_to_local rule {rule}")
    return name


def _parse(text: str, default_realm: str) -> _Default | _Rule:
    found = _RULE.match(text)
    if found is None:
        raise ValueError(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    if found[1]:
        return _Default(default_realm)
    if not found[2]:
        raise ValueError(f"Invalid rule: {text}: the number of components is missing")
    match = None if found[4] is None else _compiled(found[4], text)
    pattern = None if found[5] is None else _compiled(found[5], text)
    expand = None if pattern is None else _replacement(found[6], pattern.groups, text)
    return _Rule(text, int(found[2]), found[3], match, pattern, expand, bool(found[7]), found[8] or "")


def _compiled(pattern: str, rule: str) -> Any:
    """Compile with google-re2 if it is installed and knows the pattern's features, else with `re`."""
    try:
        import re2
    except ImportError:
        pass
    else:
        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(pattern, options)
        except re2.error:
            pass
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"Invalid rule: {rule}: {pattern} is not a valid pattern: {error}") from None


def _replacement(text: str, groups: int, rule: str) -> Callable[[Any], str]:
    """Return a function that expands a replacement in Java's syntax: `$n` is a group, `\\` quotes.

    Of the digits after `$` as many belong to the number as there are groups. Raises ValueError."""
    parts: list[str | int] = []
    end = 0
    for found in _REPLACEMENT.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        if found[1]:
            parts.append(found[1])
        elif found[2]:
            digits = found[2]
            length = next((n for n in range(len(digits), 1, -1) if int(digits[:n]) <= groups), 1)
            if int(digits[:length]) > groups:
                raise ValueError(f"Invalid rule: {rule}: No group {digits[:length]}")
            parts += int(digits[:length]), digits[length:]
        else:
            raise ValueError(f"Invalid rule: {rule}: Illegal group reference, or nothing after \\")
    parts.append(text[end:])
    return lambda match: "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)
