"""`ssl.principal.mapping.rules`: principals of SSL clients made of distinguished names
(`SslPrincipalMapper`).

Rules are tried in order, and the first that matches the whole name applies. A rule is `DEFAULT`, which
keeps the name, or `RULE:pattern/replacement/` with an optional `L` or `U` for lower or upper case.

Patterns come from the broker's settings, names from clients. google-re2 matches in linear time where it is
installed. Otherwise a pattern that repeats a repetition is rejected, and so are names that are longer than
`MAX_BACKTRACKED_LENGTH`, so that none keeps the broker busy for long.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from konvene.security.principal import ANONYMOUS, USER, KafkaPrincipal
from konvene.security.tls.distinguished_names import certificate_names

__all__ = ["PrincipalMapper"]

DEFAULT: Final = "DEFAULT"
MAX_NAME_LENGTH: Final = 4_096
MAX_BACKTRACKED_LENGTH: Final = 256
"""Longest name that is matched without google-re2."""

_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)")
_SPLIT: Final = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?)\s*(?:,\s*|$)")
_REPETITIONS: Final = "*+{"
_SYNTAX: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)[*+{]?|[*+{]", re.DOTALL)
"""What matters for repetitions: escapes and classes, which have none, groups, and signs of repetition."""
_BACK_REFERENCE: Final = re.compile(r"\$(\d)")


class _Rule(NamedTuple):
    pattern: Any
    """Compiled pattern; None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the principal's name, or None if the pattern does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.match(name)
        if match is None or match.end() != len(name):
            return None
        text = _BACK_REFERENCE.sub(lambda found: match.group(int(found[1])) or "", self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


class PrincipalMapper:
    """The mapping of certificates to principals, of the rules in a broker's settings."""

    def __init__(self, rules: str = DEFAULT) -> None:
        """Parse the rules. Raises ValueError with Kafka's message if they are invalid."""
        self._text = rules
        self._rules = _parse(rules)
        is_backtracking = any(isinstance(rule.pattern, re.Pattern) for rule in self._rules)
        self._max_length = MAX_BACKTRACKED_LENGTH if is_backtracking else MAX_NAME_LENGTH

    def __repr__(self) -> str:
        return f"<principal mapper: {self._text}>"

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal. Raises ValueError if no rule applies."""
        if len(distinguished_name) <= self._max_length:
            for rule in self._rules:
                name = rule.apply(distinguished_name)
                if name is not None:
                    return name
        raise ValueError(f"No rules apply to {distinguished_name[:200]}, rules {self._text}")

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the principal of a client's certificate in DER; the anonymous one without a certificate.

        Raises ValueError if no rule applies, and `InvalidDer` if the certificate is malformed."""
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER, self.name_of(certificate_names(certificate).subject))


def _parse(rules: str) -> tuple[_Rule, ...]:
    parsed, position = [], 0
    text = rules.strip()
    while position < len(text):
        match = _SPLIT.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(f"Invalid rule: `{text[position:]}`, syntax error in the `{rules}`.")
        parsed.append(_rule(match[1]))
        position = match.end()
    return tuple(parsed) or (_Rule(None),)


def _rule(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    assert match is not None
    if match[1]:
        return _Rule(None)
    try:
        import re2
    except ImportError:
        compiler: Any = re
    else:
        compiler = re2
    pattern = match[2].replace("\\/", "/")
    if compiler is re and _repeats_repetition(pattern):
        raise ValueError(
            f"ssl.principal.mapping.rules: {pattern} repeats a repetition, which may match very slowly; use a"
            " simpler pattern, or pip install 'konvene[re2]'"
        )
    try:
        compiled = compiler.compile(pattern)
    except Exception as error:
        raise ValueError(f"ssl.principal.mapping.rules: {pattern} is not a valid pattern: {error}") from None
    highest = max((int(number) for number in _BACK_REFERENCE.findall(match[3])), default=0)
    if highest > compiled.groups:
        raise ValueError(f"ssl.principal.mapping.rules: {pattern} has no group {highest}")
    return _Rule(compiled, match[3].replace("\\/", "/"), match[4])


def _repeats_repetition(pattern: str) -> bool:
    """Return True if a group with a repetition in it is repeated itself, as in `(a+)+`."""
    groups = [False]  # Whether each open group has a repetition in it.
    for found in _SYNTAX.finditer(pattern):
        sign = found[0]
        if sign == "(":
            groups.append(False)
        elif sign[0] == ")":
            inner = groups.pop() if len(groups) > 1 else False
            if inner and len(sign) > 1:
                return True
            groups[-1] |= inner or len(sign) > 1
        elif sign in _REPETITIONS:
            groups[-1] = True
    return False
