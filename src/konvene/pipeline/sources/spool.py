"""A directory of segments with the batches of a live cluster as they were fetched.

It has the layout of a broker's data directory: `meta.properties` has the cluster id, and each partition has a
directory with segments that are named by their base offsets and contain the broker's bytes unchanged. So
readers of a broker's files can read it, and the position to continue from is simply the end of its last
complete batch.

Offsets only rise. A log that ends before what was read of it (it was truncated, or created again) is
rejected, since rows derived from it cannot be withdrawn; so is the log of another cluster. Records that
compaction removed before they were read leave a hole in the offsets.

Of user topics only headers are kept, each followed by a hole of the records' length: they show how far a
log had grown, and when, but none of its contents.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import HEADER_SIZE, BatchHeader, check_sum, read_header
from konvene.codec.errors import CodecError
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.internal_topics import AUDIT_TOPIC, COORDINATOR_TOPICS
from konvene.log.disk.files import Lock, RealDisk, replace
from konvene.log.index import OffsetIndex

__all__ = ["SPOOLED_TOPICS", "LogWentBack", "Spool", "SpoolError", "WrongCluster"]

SPOOLED_TOPICS = (*COORDINATOR_TOPICS, AUDIT_TOPIC)
"""Topics whose logs are copied completely, if the cluster has them."""

SEGMENT_BYTES = 64 * 1024 * 1024
INDEX_INTERVAL_BYTES = 4096
_SEGMENT = re.compile(r"\d{20}\.log")


class SpoolError(Exception):
    """The directory does not match the cluster."""


class WrongCluster(SpoolError):
    """The directory has logs of another cluster."""


class LogWentBack(SpoolError):
    """The cluster's log ends before the offsets already read, or is another one of the same name."""


class Spool:
    """A locked directory of segments; use as a context manager: `with Spool(path) as spool`."""

    def __init__(
        self, directory: str | Path, *, topics: Collection[str] = SPOOLED_TOPICS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:  # fmt: skip
        self.directory = Path(directory)
        self.topics = topics
        self.segment_bytes = segment_bytes
        self.directory.mkdir(parents=True, exist_ok=True)
        self._disk = RealDisk()
        self._lock: Lock | None = self._disk.lock(str(self.directory / ".lock"))
        self._open: dict[TopicPartition, _Segment] = {}
        self._dirty: set[TopicPartition] = set()
        self._ids: dict[str, Uuid] = {}

    def __repr__(self) -> str:
        return f"Spool({str(self.directory)!r}, {len(self._open)} partitions)"

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Sync appended batches to disk and release the lock."""
        self.sync()
        self._open.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def adopt(self, cluster_id: str | None) -> None:
        """Record the cluster id. Raises `WrongCluster` if the directory belongs to another cluster."""
        meta = self.directory / "meta.properties"
        ours = cluster_id or "unknown"
        if not meta.exists():
            replace(self._disk, str(meta), f"version=1\ncluster.id={ours}\nnode.id=-1\n".encode())
            return
        theirs = re.search(r"^cluster\.id=(.*)$", meta.read_text(), re.MULTILINE)
        if theirs is None or theirs[1].strip() != ours:
            known = theirs[1].strip() if theirs else "no cluster"
            raise WrongCluster(
                f"{self.directory} has logs of cluster {known}, this one is {ours}: choose another directory"
            )

    def name_topic(self, topic: str, topic_id: Uuid) -> None:
        """Record a topic's id. Raises `LogWentBack` if an existing log belongs to another topic id."""
        if topic_id == ZERO_UUID or self._ids.get(topic) == topic_id:
            return
        folder = self.directory / f"{topic}-0"
        path = folder / "partition.metadata"
        text = f"version: 0\ntopic_id: {topic_id}"
        if not path.exists() or path.read_text() != text:
            if path.exists() and topic in self.topics:
                raise LogWentBack(
                    f"{topic} was made anew since {self.directory} was filled: choose another directory"
                )
            folder.mkdir(exist_ok=True)
            replace(self._disk, str(path), text.encode(), durably=False)
        self._ids[topic] = topic_id

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last stored batch; None if the partition has none."""
        segment = self._segment(partition)
        return None if segment is None else segment.next_offset

    def append(self, partition: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        """Append a batch unchanged; for user topics only its header."""
        segment = self._segment(partition)
        if segment is not None and segment.size + header.size > self.segment_bytes and segment.size:
            self.cut(partition)
        if segment is None or segment.is_finished:
            folder = self.directory / str(partition)
            folder.mkdir(exist_ok=True)
            segment = self._open[partition] = _Segment(folder, header.base_offset)
        segment.append(header, batch if partition.topic in self.topics else batch[:HEADER_SIZE])
        self._dirty.add(partition)

    def cut(self, partition: TopicPartition) -> None:
        """Complete the partition's segment, so that the next batch begins a new one."""
        segment = self._segment(partition)
        if segment is not None:
            segment.finish()
            self._dirty.discard(partition)
            segment.is_finished = True

    def drop(self, partition: TopicPartition) -> None:
        """Delete the stored headers of a user topic that was created again."""
        self._dirty.discard(partition)
        self._open.pop(partition, None)
        for path in sorted((self.directory / str(partition)).glob("*.log")):
            path.unlink()

    def sync(self) -> None:
        """Sync appended batches to disk and close all files."""
        for partition in sorted(self._dirty):
            self._open[partition].sync()
        self._dirty.clear()

    def _segment(self, partition: TopicPartition) -> _Segment | None:
        if partition not in self._open:
            folder = self.directory / str(partition)
            names = sorted(p.name for p in folder.glob("*.log") if _SEGMENT.fullmatch(p.name))
            while names:
                segment = _Segment(folder, int(names.pop()[:20]))
                if segment.recover(whole=partition.topic in self.topics):
                    self._open[partition] = segment
                    break
                segment.path.unlink()
        return self._open.get(partition)


class _Segment:
    """The last segment of a partition. Its file is open between the first append and `sync`."""

    __slots__ = ("_file", "_index", "_unindexed", "base_offset", "is_finished", "next_offset", "path", "size")

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.path = folder / f"{base_offset:020d}.log"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.is_finished = False
        self.size = 0
        self._index = OffsetIndex(base_offset)
        self._unindexed = 0
        self._file = -1

    def __repr__(self) -> str:
        return f"_Segment({self.path.name}, {self.size} bytes, then {self.next_offset})"

    def append(self, header: BatchHeader, data: memoryview) -> None:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], self.size + written)
        if len(data) < header.size:
            os.ftruncate(self._file, self.size + header.size)
        self._count(header)

    def recover(self, *, whole: bool) -> bool:
        """Truncate the file after its last valid batch; return False if it has none.

        `whole` means that the file has whole batches, whose checksums are verified, and not only headers."""
        with self.path.open("r+b") as file:
            length = os.fstat(file.fileno()).st_size
            while self.size < length:
                try:
                    header = read_header(os.pread(file.fileno(), HEADER_SIZE, self.size))
                    if self.size + header.size > length:
                        break
                    if whole:
                        check_sum(os.pread(file.fileno(), header.size, self.size), header)
                except CodecError:
                    break
                self._count(header)
            file.truncate(self.size)
        return self.size > 0

    def _count(self, header: BatchHeader) -> None:
        if self._unindexed > INDEX_INTERVAL_BYTES:
            self._index.append(header.last_offset, self.size)
            self._unindexed = 0
        self._unindexed += header.size
        self.size += header.size
        self.next_offset = header.next_offset

    def finish(self) -> None:
        """Complete the segment: write its index, by which readers split it."""
        self.sync()
        self.path.with_suffix(".index").write_bytes(self._index.data)

    def sync(self) -> None:
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1
