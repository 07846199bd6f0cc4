"""Reads a broker's logs from the bytes of its simulated disk, bypassing the broker.

Reading is no disk operation: it never fails and is not counted. Each log is read on from the last position; a
torn end is read later. When the broker starts again on what its disk kept, everything is read anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import BatchHeader, check, read_header, records
from konvene.codec.errors import CodecError
from konvene.groups.shard import GroupShard
from konvene.sim.machine.disk import SimDisk

__all__ = ["Mirror", "Shadow"]


class LogReader:
    """Reads the batches of one log from its files as they are appended. Batches that the cleaner removed
    before they were read are skipped."""

    def __init__(self, disk: SimDisk, folder: str) -> None:
        self._disk = disk
        self._folder = folder + "/"
        self._positions: dict[str, tuple[object, int]] = {}
        """The file that was read under this name, and how far."""
        self._next_offset = 0

    def __repr__(self) -> str:
        return f"<reader of {self._folder} from {self._next_offset} on>"

    def new_batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches appended since the last call."""
        for path in self._disk.paths(self._folder):
            if not path.endswith(".log"):
                continue
            file = self._disk.file(path)
            previous_file, start = self._positions.get(path, (None, 0))
            if previous_file is not file:
                start = 0
            data = self._disk.peek(path, start)
            position = 0
            while position < len(data):
                try:
                    header = read_header(data, position)
                    batch = memoryview(data)[position : position + header.size]
                    check(batch, header)
                except CodecError:
                    break
                position += header.size
                self._positions[path] = file, start + position
                if header.next_offset > self._next_offset:
                    self._next_offset = header.next_offset
                    yield header, batch


class Mirror:
    """A copy of the records of those partitions that were read with `look`, as they are on the disk, by
    offset."""

    def __init__(self, disk: SimDisk, data: str) -> None:
        self._disk = disk
        self._data = data
        self._readers: dict[TopicPartition, LogReader] = {}
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        """Values by offset; None for a transaction marker."""

    def __repr__(self) -> str:
        return f"<mirror of {len(self.values)} partitions>"

    def look(self, partition: TopicPartition) -> list[tuple[int, bytes]]:
        """Return the records appended to a partition since the last call, as (offset, value)."""
        reader = self._readers.get(partition)
        if reader is None:
            reader = self._readers[partition] = LogReader(self._disk, f"{self._data}/{partition}")
        values = self.values.setdefault(partition, [])
        appended = []
        for header, batch in reader.new_batches():
            if header.is_control:
                values.append(None)
                continue
            for record in records(batch, header):
                appended.append((record.offset, record.value or b""))
                values.append(record.value or b"")
        return appended

    def end(self, partition: TopicPartition) -> int:
        return len(self.values.get(partition, ()))

    def at(self, partition: TopicPartition, offset: int) -> bytes | None:
        values = self.values.get(partition, [])
        return values[offset] if 0 <= offset < len(values) else None


class Shadow:
    """A second state of a group coordinator (`shard`), which replays the coordinator's log from the disk,
    independently of the broker."""

    def __init__(self, disk: SimDisk, folder: str) -> None:
        self._reader = LogReader(disk, folder)
        self.shard = GroupShard()
        self.end_offset = 0

    def __repr__(self) -> str:
        return f"<shadow to {self.end_offset}: {self.shard!r}>"

    def catch_up(self) -> GroupShard:
        for header, batch in self._reader.new_batches():
            for _, _, record in GROUP_SERDE.read(batch, header):
                self.shard.replay(record)
            self.end_offset = header.next_offset
        return self.shard
