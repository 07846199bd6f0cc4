"""Progress of a pipeline step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Progress", "Watch", "Watched"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a step: completed tasks and input bytes, their totals, and rows written."""

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
        """The completed fraction, 0 to 1, by bytes if they are known."""
        if self.bytes:
            return self.bytes_done / self.bytes
        return self.tasks_done / self.tasks if self.tasks else 1.0


Watch = Callable[[Progress], None]


class Watched:
    """Counts the progress of a step and reports it to a watcher, if there is one."""

    def __init__(self, step: str, watch: Watch | None) -> None:
        self._now = Progress(step)
        self._watch = watch

    def __repr__(self) -> str:
        return f"<{self._now.tasks_done} of {self._now.tasks} tasks of {self._now.step}>"

    def expect(self, tasks: int, size: int) -> None:
        """Add tasks with `size` bytes to read in total."""
        now = self._now
        self._report(replace(now, tasks=now.tasks + tasks, bytes=now.bytes + size))

    def did(self, size: int, rows: int) -> None:
        """Count a completed task that read `size` bytes and wrote `rows` rows."""
        now = self._now
        self._report(
            replace(
                now, tasks_done=now.tasks_done + 1, bytes_done=now.bytes_done + size, rows=now.rows + rows
            )
        )

    def _report(self, now: Progress) -> None:
        self._now = now
        if self._watch is not None:
            self._watch(now)
