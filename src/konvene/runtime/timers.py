"""Timers by key, all served by one timer of the event loop.

Sessions are re-armed with every heartbeat and hardly ever expire. So re-arming only stores the later
deadline; when the alarm reaches the earlier one, the key is queued again for the later one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Alarm(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """An event loop as far as timers use it."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Alarm: ...


class Timers(Generic[K]):
    """A set of deadlines by key; `fire(key)` is called once for each key whose deadline has passed."""

    __slots__ = ("_alarm", "_alarm_at", "_clock", "_deadlines", "_fire", "_heap", "_serial")

    def __init__(self, clock: Clock, fire: Callable[[K], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._deadlines: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0
        self._alarm: Alarm | None = None
        self._alarm_at = float("inf")

    def __len__(self) -> int:
        return len(self._deadlines)

    def __repr__(self) -> str:
        return f"<timers: {len(self._deadlines)} armed>"

    @property
    def deadlines(self) -> Mapping[K, float]:
        """Return the deadlines of armed keys, in the clock's time."""
        return self._deadlines

    def arm(self, key: K, after_ms: int, unless_armed: bool = False) -> None:
        """Set the deadline of `key` to `after_ms` from now, replacing the one that it has.

        `unless_armed`: if it has a deadline, keep that one."""
        before = self._deadlines.get(key)
        if unless_armed and before is not None:
            return
        deadline = self._clock.time() + after_ms / 1000
        self._deadlines[key] = deadline
        if before is None or deadline < before:
            self._push(deadline, key)

    def disarm(self, key: K) -> bool:
        """Disarm `key`; return whether it was armed."""
        return self._deadlines.pop(key, None) is not None

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, float("inf")

    def _push(self, deadline: float, key: K) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (deadline, self._serial, key))
        self._set_alarm()

    def _set_alarm(self) -> None:
        first = self._heap[0][0] if self._heap else float("inf")
        if first >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = first
        self._alarm = self._clock.call_at(first, self._fire_due)

    def _fire_due(self) -> None:
        self._alarm, self._alarm_at = None, float("inf")
        now = self._clock.time()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline > now:
                self._serial += 1
                heapq.heappush(self._heap, (deadline, self._serial, key))
                continue
            del self._deadlines[key]
            self._fire(key)
        self._set_alarm()
