"""Event queue of the simulator: virtual time, and callbacks in the order of their deadlines.

Time stands still while a callback runs, then jumps to the next deadline. The seed decides the order of
callbacks with equal deadlines; without a seed they run in the order in which they were scheduled.

The broker's coordinator uses only a small part of its event loop: the time, timers, and occasionally a task.
The queue provides these, so the production coordinator runs here unchanged. A coroutine may only await a
`Pause`; there are no futures.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator
from random import Random


class Entry:
    """A scheduled callback, which can be cancelled."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[object, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args

    def __repr__(self) -> str:
        return f"<entry {getattr(self.call, '__qualname__', self.call)}>"

    def cancel(self) -> None:
        self.call, self.args = None, ()


class EventQueue:
    """Virtual time and the callbacks that are scheduled in it.

    `now_ms` is the monotonic time; the wall clock is `wall_off_ms` ahead of it."""

    def __init__(self, random: Random | None = None, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.wall_off_ms = 0
        self._random = random
        self._entries: list[tuple[int, float, int, Entry]] = []
        self._serial = 0
        self._called_s = 0.0

    def __repr__(self) -> str:
        return f"<event queue at {self.now_ms} ms: {len(self._entries)} entries>"

    def wall_clock_ms(self) -> int:
        return self.now_ms + self.wall_off_ms

    # --- scheduling ---

    def after(self, delay_ms: int, call: Callable[..., object], *args: object) -> Entry:
        """Schedule `call(*args)` in `delay_ms` milliseconds; the returned entry can be cancelled."""
        entry = Entry(call, args)
        self._serial += 1
        tie = 0.0 if self._random is None else self._random.random()
        heapq.heappush(self._entries, (self.now_ms + delay_ms, tie, self._serial, entry))
        return entry

    def next_ms(self) -> int | None:
        """Return the deadline of the next callback, in ms of `now_ms`; None if no callback is scheduled."""
        entries = self._entries
        while entries and entries[0][3].call is None:
            heapq.heappop(entries)
        return entries[0][0] if entries else None

    def step(self) -> bool:
        """Set the time to the next deadline and run its callback; return False if none is scheduled."""
        due_ms = self.next_ms()
        if due_ms is None:
            return False
        entry = heapq.heappop(self._entries)[3]
        self.now_ms = max(self.now_ms, due_ms)
        call = entry.call
        assert call is not None
        call(*entry.args)
        return True

    def run_until(self, end_ms: int) -> None:
        """Run all callbacks with a deadline up to `end_ms`, then set the time to `end_ms`."""
        while (due_ms := self.next_ms()) is not None and due_ms <= end_ms:
            self.step()
        self.now_ms = max(self.now_ms, end_ms)

    # --- the clock of a coordinator ---

    def time(self) -> float:
        """Return `now_ms` in seconds; or, if rounding puts that before the deadline of the running callback,
        the deadline."""
        return max(self.now_ms / 1000, self._called_s)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Entry:
        return self.after(max(0, round(when * 1000) - self.now_ms), self._call_at, when, callback, args)

    def _call_at(self, when: float, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._called_s = max(self._called_s, when)
        callback(*args)


class Pause:
    """An awaitable that suspends the coroutine that awaits it until `end` is called, which resumes the
    coroutine within that call."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: Task | None = None

    def __await__(self) -> Generator[Pause, None, None]:
        yield self

    def held_by(self, task: Task) -> None:
        self._task = task

    def end(self, error: BaseException | None = None) -> None:
        """Resume the coroutine that awaits this, with `error` raised at its `await` if given. Further calls
        do nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.go_on(error)


class Task:
    """A coroutine that runs on the event queue, with those methods of `asyncio.Task` that a coordinator
    uses."""

    __slots__ = ("_coroutine", "done")

    def __init__(self, coroutine: Coroutine[object, None, None]) -> None:
        self._coroutine = coroutine
        self.done = False

    def go_on(self, error: BaseException | None) -> None:
        """Resume the coroutine up to its next `Pause` or its end, with `error` thrown into it if given."""
        while not self.done:
            try:
                waits = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration:
                self.done = True
                return
            error = None
            if isinstance(waits, Pause):
                waits.held_by(self)
                return

    def cancel(self) -> None:
        self.done = True
        self._coroutine.close()
