"""What stands in a broker's logs, read from the bytes of its disk and not through the broker.

Reading is no operation of the disk: it never fails and is not counted. Each log is read on from where it
was left; a torn end is waited for. When the broker begins a new life on what was found of its disk, all is
read anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from konvene.broker.groups.record_serde import GROUP_SPEECH
from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import BatchHeader, check, read_header, records
from konvene.codec.errors import CodecError
from konvene.groups.shard import GroupShard
from konvene.sim.machine.disk import SimDisk

__all__ = ["Mirror", "Shadow"]


class LogReader:
    """One log's batches, as they come. What a cleaner takes before it was read is passed over."""

    def __init__(self, disk: SimDisk, folder: str) -> None:
        self._disk = disk
        self._folder = folder + "/"
        self._at: dict[str, tuple[object, int]] = {}
        """The file that was read under this name, and how far."""
        self._next_offset = 0

    def __repr__(self) -> str:
        return f"<reader of {self._folder} from {self._next_offset} on>"

    def fresh(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches that came since."""
        for path in self._disk.paths(self._folder):
            if not path.endswith(".log"):
                continue
            file = self._disk.file(path)
            known, start = self._at.get(path, (None, 0))
            if known is not file:
                start = 0
            data = self._disk.peek(path, start)
            at = 0
            while at < len(data):
                try:
                    header = read_header(data, at)
                    batch = memoryview(data)[at : at + header.size]
                    check(batch, header)
                except CodecError:
                    break
                at += header.size
                self._at[path] = file, start + at
                if header.next_offset > self._next_offset:
                    self._next_offset = header.next_offset
                    yield header, batch


class Mirror:
    """The records of some partitions, by offset."""

    def __init__(self, disk: SimDisk, data: str) -> None:
        self._disk = disk
        self._data = data
        self._readers: dict[TopicPartition, LogReader] = {}
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        """By offset; None where a transaction's marker stands, which nobody reads."""

    def __repr__(self) -> str:
        return f"<mirror of {len(self.values)} partitions>"

    def look(self, place: TopicPartition) -> list[tuple[int, bytes]]:
        """What came since the last look: offset and value."""
        reader = self._readers.get(place)
        if reader is None:
            reader = self._readers[place] = LogReader(self._disk, f"{self._data}/{place}")
        values = self.values.setdefault(place, [])
        came = []
        for header, batch in reader.fresh():
            if header.is_control:
                values.append(None)
                continue
            for record in records(batch, header):
                came.append((record.offset, record.value or b""))
                values.append(record.value or b"")
        return came

    def end(self, place: TopicPartition) -> int:
        return len(self.values.get(place, ()))

    def at(self, place: TopicPartition, offset: int) -> bytes | None:
        values = self.values.get(place, [])
        return values[offset] if 0 <= offset < len(values) else None


class Shadow:
    """A shard that is nothing but the fold of replay over its log."""

    def __init__(self, disk: SimDisk, folder: str) -> None:
        self._reader = LogReader(disk, folder)
        self.shard = GroupShard()
        self.end_offset = 0

    def __repr__(self) -> str:
        return f"<shadow to {self.end_offset}: {self.shard!r}>"

    def catch_up(self) -> GroupShard:
        for header, batch in self._reader.fresh():
            for _, _, record in GROUP_SPEECH.read(batch, header):
                self.shard.replay(record)
            self.end_offset = header.next_offset
        return self.shard
