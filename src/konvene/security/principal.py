"""Principals: the identity of a client, as Kafka's `KafkaPrincipal`."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ANONYMOUS", "USER", "KafkaPrincipal", "parse_principal"]

USER: Final = "User"
"""The principal type of all clients."""


class KafkaPrincipal(NamedTuple):
    """A principal: its type, `User` unless a custom builder made it, and its name. Two are equal by both."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")
"""The principal of clients that do not authenticate."""


def parse_principal(text: str) -> KafkaPrincipal:
    """Return the principal written as `type:name`; the name may contain colons. Raises ValueError."""
    kind, separator, name = text.partition(":")
    if not separator:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(kind, name)
