"""Event loop of a simulated coordinator process: its callbacks no longer run once the process has died."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from konvene.runtime.coordinator import Coordinator
from konvene.shard.contract import TimerKey
from konvene.sim.event_queue import Entry, EventQueue, Task

__all__ = ["ProcessLoop", "TimerReportingCoordinator"]


class ProcessLoop:
    """An event loop for one coordinator on the world's event queue. After `end`, no callback runs."""

    def __init__(
        self, event_queue: EventQueue, delay_ms: Callable[[], int], finish: Callable[[], None]
    ) -> None:
        self.alive = True
        self._event_queue = event_queue
        self._delay_ms = delay_ms
        self._finish = finish
        self.time = event_queue.time
        self._delayed: set[Task] = set()
        """Tasks whose start is delayed; they are cancelled if the process dies before."""

    def end(self) -> None:
        self.alive = False
        for task in self._delayed:
            task.cancel()
        self._delayed.clear()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        task = Task(coroutine)
        delay_ms = self._delay_ms()
        if delay_ms:
            self._delayed.add(task)
            self._event_queue.after(delay_ms, self._call, self._begin, task)
        else:
            task.go_on(None)
        return task

    def _begin(self, task: Task) -> None:
        self._delayed.remove(task)
        task.go_on(None)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Entry:
        return self._event_queue.call_at(when, self._call, callback, *args)

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        if self.alive:
            callback(*args)
            self._finish()


class TimerReportingCoordinator(Coordinator):
    """A coordinator that calls `fired` after each timer, so that each of several due timers is an event."""

    fired: Callable[[], None]

    def _fire(self, key: TimerKey) -> None:
        super()._fire(key)
        self.fired()
