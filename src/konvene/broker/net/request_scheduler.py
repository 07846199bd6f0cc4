"""Whose request is decided now, and whose in one of the next turns of the loop.

In one turn the loop reads from every connection on which something came, and what is answered leaves when
the turn is over. When thousands heartbeat at the same moment and each has something to be told, that would be
one turn of half a second, in which nobody hears anything. So only some requests are decided in a turn; the
others wait, first come first served, and what is answered meanwhile leaves in between. A heartbeat that is
remembered costs next to nothing and is answered in any turn.

It counts requests and knows no clock, so that what was played once can be played again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

AT_ONCE = 50
"""So many are decided in a turn, or twice as many: few milliseconds of heartbeats."""

FEW = 8
"""Below so many since it was looked at last, a turn is not looked at."""


class Asker(Protocol):
    """Somebody whose request waits."""

    def decide(self, frame: bytes) -> None:
        """Decide it now."""


class RequestScheduler:
    """The requests that wait, of each connection at most one."""

    __slots__ = ("_goes_on", "_left", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[Asker, bytes] = OrderedDict()
        self._left = AT_ONCE
        self._goes_on = False

    def __repr__(self) -> str:
        return f"<{len(self._waiting)} requests wait for their turn>"

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, asker: Asker, frame: bytes) -> bool:
        """Whether this request is to be decided now; else it is decided later."""
        now = self._left > 0 and not self._waiting
        if now:
            self._left -= 1
        else:
            self._waiting[asker] = frame
        if self._left <= AT_ONCE - FEW and not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._next)
        return now

    def _next(self) -> None:
        """The next turn."""
        for _ in range(min(AT_ONCE, len(self._waiting))):
            asker, frame = self._waiting.popitem(last=False)
            asker.decide(frame)
        self._left = AT_ONCE
        self._goes_on = bool(self._waiting)
        if self._goes_on:
            self._loop.call_soon(self._next)

    def at_once(self, asker: Asker) -> None:
        """Who waits and goes is not waited for: what it asked is decided before."""
        frame = self._waiting.pop(asker, None)
        if frame is not None:
            asker.decide(frame)

    def close(self) -> None:
        """Nobody waits any more."""
        while self._waiting:
            asker, frame = self._waiting.popitem(last=False)
            asker.decide(frame)
