"""Durations as options name them: `90s`, `2h`, `500 ms`."""

from __future__ import annotations

import re

__all__ = ["milliseconds"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str) -> int | None:
    """Return a duration in ms; None if the text is not one."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _UNIT_MS[found[2]])
