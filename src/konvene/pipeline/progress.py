"""How far a step of the pipeline is, for who wants to show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Progress", "Watch", "Watched"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Tasks and bytes of input that are done, of so many; and what came of them."""

    step: str
    """`ingest` or `build`."""
    tasks_done: int = 0
    tasks: int = 0
    bytes_done: int = 0
    bytes: int = 0
    rows: int = 0
    """Rows written so far."""

    @property
    def done(self) -> float:
        """The part that is done, from 0 to 1, by bytes where they are known."""
        if self.bytes:
            return self.bytes_done / self.bytes
        return self.tasks_done / self.tasks if self.tasks else 1.0


Watch = Callable[[Progress], None]


class Watched:
    """Counts for a step and tells its watcher, if there is one."""

    def __init__(self, step: str, watch: Watch | None) -> None:
        self._now = Progress(step)
        self._watch = watch

    def __repr__(self) -> str:
        return f"<{self._now.tasks_done} of {self._now.tasks} tasks of {self._now.step}>"

    def expect(self, tasks: int, size: int) -> None:
        """There are so many tasks more, with so many bytes to read."""
        now = self._now
        self._tell(replace(now, tasks=now.tasks + tasks, bytes=now.bytes + size))

    def did(self, size: int, rows: int) -> None:
        """A task is done that had so many bytes to read and wrote so many rows."""
        now = self._now
        self._tell(
            replace(
                now, tasks_done=now.tasks_done + 1, bytes_done=now.bytes_done + size, rows=now.rows + rows
            )
        )

    def _tell(self, now: Progress) -> None:
        self._now = now
        if self._watch is not None:
            self._watch(now)
