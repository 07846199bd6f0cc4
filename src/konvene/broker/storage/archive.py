"""Hands over finished segments before cleaning or retention removes them, so that their records are not lost.

Before segments are replaced or deleted, the cleaner and retention call `hand_over`. It passes the segments to
a directory (`konvene.log.archive.dir`), which keeps them for `konvene.pipeline`, and to the callables in
`takers`. It returns True if the segments may be removed now. If the archive cannot take them, the reason is
logged, and they stay until the next attempt: a full archive does not stop the broker, but it stops the
cleaning and the retention of the logs that it archives. Kafka's tiered storage treats segments that it could
not upload in the same way.

The directory has the layout of a broker's data directory: `meta.properties` names the cluster (and node -1,
which no broker has), and each partition has a folder with segments and indexes. The progress of a partition
is the end of the last complete batch in its folder, and is stored nowhere else. So no record is archived
twice. If a segment is cleaned after it was archived, the archive keeps the uncleaned copy.

A segment's file appears complete or not at all: it is hard-linked if the file system can do that, otherwise
copied under another name and renamed. Its indexes appear before it. When `hand_over` returns True, all of it
is durable. Segments are archived in the order of their offsets, each one durable before the next. So after
any crash the archive holds a prefix of the log, and nothing beyond it has been removed from the log.

The archive never deletes a segment, neither in the log nor in its own directory. It has no task or thread of
its own: all work happens in `hand_over`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from konvene.configs import ConfigError
from konvene.log.directory import META_NAME, TOPIC_ID_NAME, TopicPartition
from konvene.log.disk.files import Disk, make_directory, replace
from konvene.log.errors import LogError
from konvene.log.segment import CHUNK_BYTES, Segment, segment_name

if TYPE_CHECKING:
    from konvene.configs import BrokerConfig
    from konvene.log.directory import LogDirectory
    from konvene.log.partition import PartitionLog

__all__ = ["Archive", "ArchiveMismatch", "FinishedSegment", "SegmentStore", "Taker"]

log = logging.getLogger("konvene.archive")

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
"""Suffixes of the indexes that are archived before their segment."""

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a copy that is not complete."""

CANNOT_LINK = frozenset(
    {errno.EXDEV, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK}
)
"""Errors of file systems that cannot link the file. It is copied."""

_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]*)\Z")
_CLUSTER = re.compile(r"^cluster\.id=(.*)$", re.MULTILINE)
_TOPIC_ID = re.compile(r"^topic_id: *(.*)$", re.MULTILINE)
_INDEX_INTERVAL = 4096


class FinishedSegment(NamedTuple):
    """A segment to which nothing is appended any more. Its file may be deleted after the taker returns."""

    topic: str
    partition: int
    topic_id: str | None
    base_offset: int
    next_offset: int
    path: str
    """Path of its `.log` file; the indexes are in the same folder."""


Taker = Callable[[FinishedSegment], None]
"""Stores a segment, or raises if that is not possible now.

Called in a thread, oldest segment first. A segment is passed again after a restart or a failure; by then some
of its records may have been removed by a cleaning."""


class ArchiveMismatch(Exception):
    """The archive directory belongs to another cluster, or is ahead of the log."""


class Archive:
    """Hands the finished segments of `topics` to a `SegmentStore` and to other takers. A broker has one."""

    def __init__(
        self, directory: LogDirectory, topics: Collection[str], store: SegmentStore | None = None
    ) -> None:
        self._directory = directory
        self.topics = frozenset(topics)
        self.store = store
        self.takers: list[Taker] = []
        self.failing: dict[TopicPartition, str] = {}
        """Why the last attempt to hand over segments failed, by partition; only where it failed."""
        self._handed_over: dict[TopicPartition, tuple[str | None, int]] = {}
        """Topic id and end offset of the segments that were handed over."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<archive in {self.store}, {len(self.takers)} takers, {len(self.failing)} logs failing>"

    @classmethod
    def of(cls, config: BrokerConfig, directory: LogDirectory) -> Archive:
        """Return the configured archive. Raises `ConfigError` if it would be in the data directory."""
        path: str = config["konvene.log.archive.dir"]
        topics: tuple[str, ...] = config["konvene.log.archive.topics"]
        return cls.at(path, directory, topics) if path else cls(directory, topics)

    @classmethod
    def at(cls, path: str, directory: LogDirectory, topics: Collection[str]) -> Archive:
        """Return an archive of `topics` in the directory `path`. Raises `ConfigError` as `of` does."""
        path = os.path.abspath(path)  # noqa: PTH100 (a path is text here)
        own = os.path.abspath(directory.path)  # noqa: PTH100
        if f"{path}/".startswith(f"{own}/"):
            raise ConfigError(
                f"konvene.log.archive.dir={path} is in the data directory: choose another directory"
            )
        store = SegmentStore(directory.disk, path, directory.identity.cluster_id)
        try:
            store.prepare()
        except (OSError, ArchiveMismatch) as error:
            log.error(
                "cannot archive segments in %s; until then their logs are neither cleaned nor shortened: %s",
                path,
                error,
            )
        return cls(directory, topics, store)

    def accepts(self, of: PartitionLog) -> bool:
        """Return True if the segments of this log have to be handed over."""
        return bool(self.store or self.takers) and self._name(of).topic in self.topics

    def hand_over(self, of: PartitionLog, segments: Sequence[Segment]) -> bool:
        """Hand over finished segments, oldest first; return True if they may be replaced or deleted now.

        May be called from any thread except the event loop's, because it waits for the disk and may copy.
        Errors of the archive are logged, not raised."""
        if not self.accepts(of):
            return True
        name = self._name(of)
        with self._lock:
            try:
                self._hand_over(name, of, segments)
            except Exception as error:
                if of.health.failure is not None or not self._directory.disk.exists(of.directory):
                    return False  # The log itself is offline or deleted, which is handled elsewhere.
                self._record_failure(name, error)
                return False
            if self.failing.pop(name, None) is not None:
                log.info("%s: its segments are archived again", name)
        return True

    def _hand_over(self, name: TopicPartition, of: PartitionLog, segments: Sequence[Segment]) -> None:
        topic_id = self._directory.topic_id(name)
        known_topic_id, end = self._handed_over.get(name, (topic_id, -1))
        if known_topic_id != topic_id:
            end = -1
        pending = [segment for segment in segments if segment.size and segment.next_offset > end]
        if not pending:
            return
        of.sync_finished()
        if of.health.failure is not None:
            raise of.health.refusal()
        if self.store is not None:
            self.store.open_partition(name, topic_id, of.end_offset)
        for segment in pending:
            if self.store is not None:
                self.store.add(name, segment)
            finished = FinishedSegment(
                *name, topic_id, segment.base_offset, segment.next_offset, segment.path
            )
            for taker in self.takers:
                taker(finished)
            self._handed_over[name] = topic_id, segment.next_offset

    def _record_failure(self, name: TopicPartition, error: Exception) -> None:
        """Log a failure, unless the partition's last attempt failed for the same reason."""
        reason = f"{type(error).__name__}: {error}"
        if self.failing.get(name) != reason:
            self.failing[name] = reason
            expected = isinstance(error, OSError | LogError | ArchiveMismatch)
            log.error(
                "%s: cannot archive its segments; until then the log is neither cleaned nor shortened: %s",
                name, reason, exc_info=None if expected else error,
            )  # fmt: skip
        if self.store is not None:
            self.store.refresh()

    @staticmethod
    def _name(of: PartitionLog) -> TopicPartition:
        match = _FOLDER.match(of.directory.rpartition("/")[2])
        assert match is not None, of.directory
        return TopicPartition(match[1], int(match[2]))


class SegmentStore:
    """The directory in which an archive keeps segments, with a folder for each partition."""

    def __init__(self, disk: Disk, path: str, cluster_id: str) -> None:
        self._disk = disk
        self.path = path
        self._cluster_id = cluster_id
        self._ready: dict[TopicPartition, str | None] = {}
        self._ends: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        return f"SegmentStore({self.path!r}, {len(self._ends)} partitions)"

    def refresh(self) -> None:
        """Forget what is known of the directory, so that it is read anew: a repair may have changed it."""
        self._ready.clear()
        self._ends.clear()

    def open_partition(self, of: TopicPartition, topic_id: str | None, end_offset: int) -> None:
        """Prepare the folder of a partition whose log ends at `end_offset`.

        Raises OSError, and `ArchiveMismatch` if the archive is ahead of the log."""
        if of not in self._ready or self._ready[of] != topic_id:
            self.prepare()
            self._ends.pop(of, None)
            self._make_folder(of, topic_id)
            self._ready[of] = topic_id
        end = self.end(of)
        if end_offset < end:
            raise ArchiveMismatch(
                f"{self.path} has {of} up to offset {end}, but the log ends at {end_offset}: the log was "
                "truncated; choose another directory"
            )

    def end(self, of: TopicPartition) -> int:
        """Return the end offset of a partition's archived records, 0 if there are none."""
        if of not in self._ends:
            folder = f"{self.path}/{of}"
            names = [n for n in self._disk.listdir(folder) if re.fullmatch(r"[0-9]{20}\.log", n)]
            self._ends[of] = _end(self._disk, f"{folder}/{names[-1]}") if names else 0
        return self._ends[of]

    def add(self, of: TopicPartition, segment: Segment) -> None:
        """Archive the part of a segment that is not archived yet, durably. Raises OSError or `LogError`."""
        end, folder = self.end(of), f"{self.path}/{of}"
        if segment.next_offset <= end:
            return
        if segment.base_offset >= end:
            self._add_indexes(segment, folder)
            _link_or_copy(self._disk, segment.path, f"{folder}/{segment_name(segment.base_offset, '.log')}")
        else:
            # It was merged with archived records by a cleaning: copy the batches after those.
            with _opened(self._disk, segment.path) as reopened:
                located = reopened.locate(end)
            if located is not None:
                _copy(self._disk, segment.path, f"{folder}/{segment_name(end, '.log')}", located[0])
        self._disk.sync_directory(folder)
        self._ends[of] = segment.next_offset

    def _add_indexes(self, segment: Segment, folder: str) -> None:
        """Archive the indexes of a segment; build the offset index if it is missing."""
        source, stem = segment.path.removesuffix(".log"), f"{folder}/{segment.base_offset:020d}"
        for suffix in INDEX_SUFFIXES:
            if self._disk.exists(source + suffix):
                _replace_link(self._disk, source + suffix, stem + suffix)
        if not self._disk.exists(f"{source}.index"):
            with _opened(self._disk, segment.path) as reopened:
                replace(self._disk, f"{stem}.index", bytes(reopened.offsets.data))

    def prepare(self) -> None:
        """Create the directory, or check that it is of this cluster. Raises OSError or `ArchiveMismatch`."""
        meta = f"{self.path}/{META_NAME}"
        make_directory(self._disk, self.path)
        if not self._disk.exists(meta):
            replace(self._disk, meta, f"version=1\ncluster.id={self._cluster_id}\nnode.id=-1\n".encode())
            return
        match = _CLUSTER.search(self._disk.read(meta).decode("utf-8", "replace"))
        if match is None or match[1].strip() != self._cluster_id:
            owner = match[1].strip() if match else "unknown"
            raise ArchiveMismatch(
                f"{self.path} belongs to cluster {owner}, this one is {self._cluster_id}: choose another "
                "directory"
            )

    def _make_folder(self, of: TopicPartition, topic_id: str | None) -> None:
        """Create the folder of a partition; rename one that an earlier topic of this name has left."""
        folder = f"{self.path}/{of}"
        topic_id_path = f"{folder}/{TOPIC_ID_NAME}"
        if topic_id is not None and self._disk.exists(topic_id_path):
            match = _TOPIC_ID.search(self._disk.read(topic_id_path).decode("ascii", "replace"))
            known_topic_id = match[1].strip() if match else ""
            if known_topic_id != topic_id:
                token = re.sub("[^0-9a-zA-Z]", "", known_topic_id) or "unknown"
                self._disk.rename(folder, f"{self.path}/{of}.{token}-stray")
                self._disk.sync_directory(self.path)
        make_directory(self._disk, folder)
        for name in self._disk.listdir(folder):
            if name.endswith(TEMPORARY_SUFFIX):  # Left by a crash.
                self._disk.remove(f"{folder}/{name}")
        if topic_id is not None and not self._disk.exists(topic_id_path):
            replace(self._disk, topic_id_path, f"version: 0\ntopic_id: {topic_id}".encode())


@contextlib.contextmanager
def _opened(disk: Disk, path: str) -> Iterator[Segment]:
    """Open a segment's files a second time, because other threads use the log's own `Segment`."""
    folder, _, name = path.rpartition("/")
    segment = Segment.open(disk, folder, int(name[:20]), _INDEX_INTERVAL)
    try:
        yield segment
    finally:
        segment.file.close()


def _end(disk: Disk, path: str) -> int:
    """Return the end offset of a segment. Raises `DamagedLog`."""
    with _opened(disk, path) as segment:
        end = segment.base_offset
        for header, _ in segment.scan(segment.offsets.batch_before(segment.size)):
            end = header.next_offset
    return end


def _replace_link(disk: Disk, source: str, target: str) -> None:
    """Link or copy a file, replacing a target that a crash has left."""
    if disk.exists(target):
        disk.remove(target)
    _link_or_copy(disk, source, target)


def _link_or_copy(disk: Disk, source: str, target: str) -> None:
    """Create a hard link to a file, or copy it if the file system cannot link it."""
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        _copy(disk, source, target)


def _copy(disk: Disk, source: str, target: str, position: int = 0) -> None:
    """Copy a file from `position` on; the target appears when complete, and not after an error."""
    temporary = target + TEMPORARY_SUFFIX
    original, copy = disk.open(source), disk.open(temporary, create=True)
    try:
        while chunk := original.pread(CHUNK_BYTES, position):
            copy.append(chunk)
            position += len(chunk)
        copy.sync()
        disk.set_modified_ms(temporary, disk.modified_ms(source))
        copy.close()
        disk.rename(temporary, target)
    except BaseException:
        copy.close()
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        raise
    finally:
        original.close()
