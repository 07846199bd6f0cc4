"""Bounds how many requests run in one iteration of the event loop.

In one iteration the loop reads from every connection that has data, and responses leave when the iteration is
over. If thousands of members heartbeat at the same moment and each heartbeat has to be decided, the iteration
would take half a second, without any response. So only some requests run per iteration; the others are queued
in order of arrival, and responses leave in between. Heartbeats that are answered from the response cache cost
little, and are not queued.

The scheduler counts requests and reads no clock, so that a simulated run can be reproduced.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

BATCH = 50
"""Requests per iteration; twice as many if new and queued ones run. As heartbeats, a few milliseconds."""

MIN_COUNTED = 8
"""An iteration with fewer requests does not schedule a reset of the budget."""


class Requester(Protocol):
    """A connection whose requests the scheduler may queue."""

    def decide(self, frame: bytes) -> None:
        """Run a request that was queued."""


class RequestScheduler:
    """A queue of requests, at most one of each connection, and the number that may still run now."""

    __slots__ = ("_budget", "_loop", "_queue", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: OrderedDict[Requester, bytes] = OrderedDict()
        self._budget = BATCH
        self._scheduled = False

    def __repr__(self) -> str:
        return f"<{len(self._queue)} queued requests>"

    def __len__(self) -> int:
        return len(self._queue)

    def admit(self, requester: Requester, frame: bytes) -> bool:
        """Return True if the caller may run the request now; otherwise queue it and return False."""
        admitted = self._budget > 0 and not self._queue
        if admitted:
            self._budget -= 1
        else:
            self._queue[requester] = frame
        if self._budget <= BATCH - MIN_COUNTED and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_queued)
        return admitted

    def _run_queued(self) -> None:
        """Run the next batch of queued requests; called once in a new iteration of the loop."""
        for _ in range(min(BATCH, len(self._queue))):
            requester, frame = self._queue.popitem(last=False)
            requester.decide(frame)
        self._budget = BATCH
        self._scheduled = bool(self._queue)
        if self._scheduled:
            self._loop.call_soon(self._run_queued)

    def run_now(self, requester: Requester) -> None:
        """Run the queued request, if any, of a connection that is being closed."""
        frame = self._queue.pop(requester, None)
        if frame is not None:
            requester.decide(frame)

    def close(self) -> None:
        """Run all queued requests at once, because the broker stops."""
        while self._queue:
            requester, frame = self._queue.popitem(last=False)
            requester.decide(frame)
