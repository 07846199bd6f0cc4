"""How long somebody pauses, so that all together do no more than so many bytes a second.

What was done is done: it is paused for afterwards, and what was not paused for is owed. It knows no clock.
"""

from __future__ import annotations

SHORTEST_S = 0.02
"""Shorter pauses are owed until they are longer."""
SLOWEST = 1.0


class Throttle:
    """A bound on the bytes a second of everybody who asks here."""

    __slots__ = ("_free_s", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._free_s = 0.0

    def __repr__(self) -> str:
        return f"<{self.rate:g} bytes a second>"

    def become(self, rate: float) -> None:
        """Have another bound from now on; what was owed by the old one is forgiven."""
        if rate != self.rate:
            self.rate, self._free_s = rate, 0.0

    def took(self, count: int, now_s: float) -> float:
        """So many bytes were read or written; for how many seconds to pause now, 0 for none."""
        self._free_s = max(self._free_s, now_s) + count / max(self.rate, SLOWEST)
        pause_s = self._free_s - now_s
        return pause_s if pause_s >= SHORTEST_S else 0.0
