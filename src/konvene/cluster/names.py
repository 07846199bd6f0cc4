"""Validation of topic names."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_message(name: str) -> str | None:
    """Return Kafka's error message for an invalid topic name; None if the name is valid."""
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
    """Return a key that is equal for colliding names: those that differ only in `.` and `_`, as in Kafka."""
    return name.replace(".", "_")
