"""Limits the I/O rate of several tasks together: computes how long to pause after each operation.

A task performs an operation first and pauses afterwards. Pauses shorter than `MIN_PAUSE_S` are added to a
later one. The caller supplies the time, and sleeps.
"""

from __future__ import annotations

MIN_PAUSE_S = 0.02
"""Shorter pauses are postponed until they add up to this, in seconds."""
MIN_RATE = 1.0


class Throttle:
    """A limit on the bytes per second that all its users read and write together."""

    __slots__ = ("_free_s", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._free_s = 0.0

    def __repr__(self) -> str:
        return f"<{self.rate:g} bytes a second>"

    def set_rate(self, rate: float) -> None:
        """Change the limit to `rate` bytes per second; drop pauses postponed under the old limit."""
        if rate != self.rate:
            self.rate, self._free_s = rate, 0.0

    def pause_after(self, count: int, now_s: float) -> float:
        """Record that `count` bytes were read or written; return the seconds to pause now, 0 for none."""
        self._free_s = max(self._free_s, now_s) + count / max(self.rate, MIN_RATE)
        pause_s = self._free_s - now_s
        return pause_s if pause_s >= MIN_PAUSE_S else 0.0
