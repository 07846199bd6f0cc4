"""State of simulated applications: changelogs in the cluster, and restored copies on the disks of processes.

A changelog's length is the number of processed records; a copy has the offset up to which it is restored.
Copies on a disk survive the death of the process. A stateful task is restored before it runs, which takes
time, less where a copy exists.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.client.streams.tasks import Task

Store = tuple[str, Task]
"""A state store, identified by its group and task."""


class Stores:
    """The end offsets of all changelogs, and the restored offsets of their copies on all disks."""

    def __init__(self) -> None:
        self._ends: dict[Store, int] = {}
        self._disks: dict[str, dict[Store, int]] = {}

    def __repr__(self) -> str:
        return f"<stores: {len(self._ends)} changelogs, {len(self._disks)} disks>"

    def end(self, store: Store) -> int:
        """Return the end offset of a store's changelog."""
        return self._ends.get(store, 0)

    def size(self) -> int:
        """Return the total length of all changelogs."""
        return sum(self._ends.values())

    def lag(self, process: str, store: Store) -> int:
        """Return the number of records that a process has yet to restore."""
        return self.end(store) - self._restored_to(process, store)

    def restore(self, process: str, store: Store, max_records: int) -> None:
        """Restore at most `max_records` of the store's changelog to the disk of a process."""
        restored = min(self.end(store), self._restored_to(process, store) + max_records)
        self._disks.setdefault(process, {})[store] = restored

    def write(self, process: str, store: Store, count: int) -> None:
        """Append `count` records to the changelog, and apply them to the copy of the writing process."""
        self._ends[store] = self.end(store) + count
        self._disks.setdefault(process, {})[store] = self._ends[store]

    def delete_changelogs(self, group: str) -> None:
        """Delete the changelogs of a group, which makes the copies of them empty."""
        for store in [store for store in self._ends if store[0] == group]:
            del self._ends[store]

    def on_disk(self, process: str, group: str) -> Mapping[Task, int]:
        """Return the restored offset of each copy that a process has of a group's state."""
        disk = self._disks.get(process, {})
        return {task: self._restored_to(process, (name, task)) for name, task in disk if name == group}

    def _restored_to(self, process: str, store: Store) -> int:
        return min(self._disks.get(process, {}).get(store, 0), self.end(store))
