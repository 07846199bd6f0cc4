"""Virtual time: what is to happen, in the order in which it happens.

Time stands still while something happens and then jumps to whatever is next. Of two things that fall on the
same moment the seed decides which comes first; without a seed, the one that was put down first.

The broker's coordinator needs little of its event loop: the time, an alarm, and a task now and then. An
agenda has these, so that the coordinator which serves runs here as it is. A coroutine goes on when the one
thing it waits for, a `Pause`, is ended; there are no futures.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any


class Entry:
    """Something to happen; cancelled, it does not."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., Any] | None = call
        self.args = args

    def __repr__(self) -> str:
        return f"<entry {getattr(self.call, '__qualname__', self.call)}>"

    def cancel(self) -> None:
        self.call, self.args = None, ()


class EventQueue:
    """See the top of this file. `now_ms` is the monotonic time; the wall clock is off by `wall_off_ms`."""

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

    # --- what is to happen ---

    def after(self, delay_ms: int, call: Callable[..., Any], *args: Any) -> Entry:
        """Let something happen in so many milliseconds."""
        entry = Entry(call, args)
        self._serial += 1
        tie = 0.0 if self._random is None else self._random.random()
        heapq.heappush(self._entries, (self.now_ms + delay_ms, tie, self._serial, entry))
        return entry

    def next_ms(self) -> int | None:
        """When the next thing happens; None if nothing is to come."""
        entries = self._entries
        while entries and entries[0][3].call is None:
            heapq.heappop(entries)
        return entries[0][0] if entries else None

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
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
        """Let everything happen that is due by then; it is that time afterwards."""
        while (due_ms := self.next_ms()) is not None and due_ms <= end_ms:
            self.step()
        self.now_ms = max(self.now_ms, end_ms)

    # --- what a coordinator's timers ask of their clock ---

    def time(self) -> float:
        """In seconds; never before the moment for which somebody was called, whatever a float makes of it."""
        return max(self.now_ms / 1000, self._called_s)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Entry:
        return self.after(max(0, round(when * 1000) - self.now_ms), self._call_at, when, callback, args)

    def _call_at(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._called_s = max(self._called_s, when)
        callback(*args)


class Pause:
    """What a coroutine waits for. `end` lets it go on, at once."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: Task | None = None

    def __await__(self) -> Generator[Pause, None, None]:
        yield self

    def held_by(self, task: Task) -> None:
        self._task = task

    def end(self, error: BaseException | None = None) -> None:
        """Go on, or fail with this error. Only the first time counts."""
        task, self._task = self._task, None
        if task is not None:
            task.go_on(error)


class Task:
    """A coroutine under way; all of `asyncio.Task` that a coordinator looks at."""

    __slots__ = ("_coroutine", "done")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self.done = False

    def go_on(self, error: BaseException | None) -> None:
        """Run until it waits for something, or to its end."""
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
