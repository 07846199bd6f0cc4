"""Reads JAAS login configurations as text; no class is ever loaded (CVE-2023-25194).

`PlainLoginModule required username="alice" password="…";` names a login module of Java. The known ones are
recognized by name, all others are rejected: some of them connect to any server that their options name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["LoginModule", "parse_jaas"]

_PREFIX: Final = "org.apache.kafka.common.security."
_KNOWN: Final = {
    f"{_PREFIX}plain.PlainLoginModule": "PlainLoginModule",
    f"{_PREFIX}scram.ScramLoginModule": "ScramLoginModule",
    f"{_PREFIX}oauthbearer.OAuthBearerLoginModule": "OAuthBearerLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule": "Krb5LoginModule",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r'\s*(?://[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*")|(\'(?:[^\'\\]|\\.)*\')|([=;])|([^\s=;"\']+))\s*', re.DOTALL
)


class LoginModule(NamedTuple):
    """A login module and its options, which contain secrets: they are not shown."""

    name: str
    """Simple name, such as `PlainLoginModule`."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.options)} options [hidden]>"


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a JAAS configuration. Raises ValueError, without any value of the text."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ";":
        raise ValueError("the JAAS configuration does not end with a semicolon")
    if tokens[:-1].count(";"):
        raise ValueError("the JAAS configuration has more than one login module")
    class_name, flag = tokens[0], tokens[1]
    name = _KNOWN.get(class_name)
    if name is None:
        raise ValueError(
            f"login module {class_name} is not supported; use {', '.join(sorted(_KNOWN.values()))}"
        )
    if flag.lower() not in _FLAGS:
        raise ValueError(f"the control flag after {name} is missing: {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for start in range(0, len(rest), 3):
        option = rest[start : start + 3]
        if len(option) != 3 or option[1] != "=" or option[0] == "=" or option[2] == "=":
            raise ValueError(f'an option of {name} is not written as name="value"')
        options[option[0]] = option[2]
    return LoginModule(name, options)


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.end() == position:
            raise ValueError("the JAAS configuration has a quote that is not closed")
        position = match.end()
        quoted = match[1] or match[2]
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL))
        elif match[3] or match[4]:
            tokens.append(match[3] or match[4])
    return tokens
