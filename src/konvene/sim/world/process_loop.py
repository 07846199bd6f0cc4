"""What a simulated coordinator stands on beside its log: the part of an agenda that dies with its process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from konvene.runtime.coordinator import Coordinator
from konvene.sim.event_queue import Agenda, Entry, Task

__all__ = ["ProcessLoop", "Ringing"]


class ProcessLoop:
    """The agenda as one coordinator sees it. When its process dies, nothing of it happens any more."""

    def __init__(self, agenda: Agenda, delay_ms: Callable[[], int], finish: Callable[[], None]) -> None:
        self.alive = True
        self._agenda = agenda
        self._delay_ms = delay_ms
        self._finish = finish
        self.time = agenda.time
        self._late: set[Task] = set()
        """What begins after a while, if the process lives that long."""

    def end(self) -> None:
        self.alive = False
        for task in self._late:
            task.cancel()
        self._late.clear()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        task = Task(coroutine)
        delay_ms = self._delay_ms()
        if delay_ms:
            self._late.add(task)
            self._agenda.after(delay_ms, self._call, self._begin, task)
        else:
            task.go_on(None)
        return task

    def _begin(self, task: Task) -> None:
        self._late.remove(task)
        task.go_on(None)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Entry:
        return self._agenda.call_at(when, self._call, callback, *args)

    def _call(self, callback: Callable[..., Any], *args: Any) -> None:
        if self.alive:
            callback(*args)
            self._finish()


class Ringing(Coordinator):
    """A coordinator that tells when a timer has had its effect: several may ring at the same moment."""

    rang: Callable[[], None]

    def _ring(self, key: Any) -> None:
        super()._ring(key)
        self.rang()
