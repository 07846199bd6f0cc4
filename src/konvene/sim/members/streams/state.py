"""The state of simulated applications: changelogs in the cluster, and copies of them on processes' disks.

A changelog is as long as the number of records that were processed; a copy is as far as it was restored. What
is on a disk outlives the members of the process and their deaths. Whoever has to run a task with state
restores it first, which takes its time, and has less to do where a copy was kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.client.streams.tasks import Task

Store = tuple[str, Task]
"""A group and a task."""


class Stores:
    """All changelogs, and all disks."""

    def __init__(self) -> None:
        self._ends: dict[Store, int] = {}
        self._disks: dict[str, dict[Store, int]] = {}

    def __repr__(self) -> str:
        return f"<stores: {len(self._ends)} changelogs, {len(self._disks)} disks>"

    def end(self, store: Store) -> int:
        """How long the changelog is."""
        return self._ends.get(store, 0)

    def size(self) -> int:
        """How long all changelogs are together."""
        return sum(self._ends.values())

    def behind(self, process: str, store: Store) -> int:
        """How much of it a process has yet to restore."""
        return self.end(store) - self._at(process, store)

    def restore(self, process: str, store: Store, most: int) -> None:
        """Read so much of the changelog, at most."""
        at = min(self.end(store), self._at(process, store) + most)
        self._disks.setdefault(process, {})[store] = at

    def write(self, process: str, store: Store, count: int) -> None:
        """Who runs the task has processed so many records more."""
        self._ends[store] = self.end(store) + count
        self._disks.setdefault(process, {})[store] = self._ends[store]

    def lose(self, group: str) -> None:
        """The changelogs of a group are gone, and with them what was copied."""
        for store in [store for store in self._ends if store[0] == group]:
            del self._ends[store]

    def on_disk(self, process: str, group: str) -> Mapping[Task, int]:
        """How far each copy is that a process has of a group's state."""
        disk = self._disks.get(process, {})
        return {task: self._at(process, (name, task)) for name, task in disk if name == group}

    def _at(self, process: str, store: Store) -> int:
        return min(self._disks.get(process, {}).get(store, 0), self.end(store))
