"""Which names a topic may have."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def what_is_wrong(name: str) -> str | None:
    """Why a topic may not be called so; None if it may."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length"
            f" {MAX_NAME_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Names with the same key would share the names of their metrics: Kafka refuses the second one."""
    return name.replace(".", "_")
