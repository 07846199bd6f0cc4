"""Finished segments are handed over before cleaning or retention takes them: what they say is not lost.

Who cleans a log or shortens it asks `hand_over` first, with the segments that will be replaced or deleted. It
gives them to whoever takes them: to a directory (`konvene.log.archive.dir`), which keeps them for the
pipeline, and to the callables in `takers`. It answers whether they may go now. Where one of these cannot take
them the answer is no, it is said why, and they stay as they are until somebody asks again: a full archive
stops no broker, it stops the cleaning and the retention of the logs that it is for. Tiered storage does the
same with what it could not upload.

The directory looks like a broker's own: `meta.properties` says of which cluster it is (of node -1, which no
broker is: nobody cleans there), each partition has a folder with segments and their indexes. What was handed
over last stands nowhere but in them: behind the last whole batch. So nothing is there twice, and of a segment
that was cleaned since it was handed over the older copy stays alone.

A segment's file is there at once and whole, or not at all: it is linked where the file system can do that,
else copied under another name and renamed; its indexes are there before it is. When `hand_over` says yes all
of it is durable. Segments come in the order of their offsets, each durable before the next one is there. So
whatever a crash leaves is a beginning of the log, and what is missing has not been replaced.

It never deletes a segment, neither in the log nor in the archive, and it does not look for work by itself.
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

__all__ = ["Archive", "CannotKeep", "Finished", "Kept", "Taker"]

log = logging.getLogger("konvene.archive")

BESIDE = (".index", ".timeindex", ".txnindex")
"""What goes with a segment, before it."""

DRAFT = ".tmp"
"""Behind the name of a copy that is not yet whole."""

CANNOT_LINK = frozenset(
    {errno.EXDEV, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK}
)
"""What is said of files that can have no second name there. They are copied."""

_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]*)\Z")
_CLUSTER = re.compile(r"^cluster\.id=(.*)$", re.MULTILINE)
_TOPIC_ID = re.compile(r"^topic_id: *(.*)$", re.MULTILINE)
_INDEX_INTERVAL = 4096


class Finished(NamedTuple):
    """A segment that nobody appends to any more. Its file may be gone when `Taker` has returned."""

    topic: str
    partition: int
    topic_id: str | None
    base_offset: int
    next_offset: int
    path: str
    """Of its `.log` file; the indexes are beside it."""


Taker = Callable[[Finished], None]
"""Takes a segment, or raises to say that it cannot now. Called in a thread, oldest segment first, each once
or, after a start or a failure, again: by then some of its records may have been cleaned away."""


class CannotKeep(Exception):
    """The archive does not fit to what it is given."""


class Archive:
    """Who takes finished segments, and of which topics. One of a broker."""

    def __init__(self, directory: LogDirectory, topics: Collection[str], keeps: Kept | None = None) -> None:
        self._directory = directory
        self.topics = frozenset(topics)
        self.keeps = keeps
        self.takers: list[Taker] = []
        self.failing: dict[TopicPartition, str] = {}
        """Partitions of which segments could not be handed over when that was asked last, and why."""
        self._handed: dict[TopicPartition, tuple[str | None, int]] = {}
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<archive in {self.keeps}, {len(self.takers)} takers, {len(self.failing)} logs failing>"

    @classmethod
    def of(cls, config: BrokerConfig, directory: LogDirectory) -> Archive:
        """The one that settings ask for. `ConfigError` where it would be among the broker's own files."""
        path: str = config["konvene.log.archive.dir"]
        topics: tuple[str, ...] = config["konvene.log.archive.topics"]
        return cls.at(path, directory, topics) if path else cls(directory, topics)

    @classmethod
    def at(cls, path: str, directory: LogDirectory, topics: Collection[str]) -> Archive:
        """One that keeps segments at `path`. `ConfigError` as `of`."""
        path = os.path.abspath(path)  # noqa: PTH100 (a path is text here)
        own = os.path.abspath(directory.path)  # noqa: PTH100
        if f"{path}/".startswith(f"{own}/"):
            raise ConfigError(f"konvene.log.archive.dir={path} is in the data directory: choose another one")
        keeps = Kept(directory.disk, path, directory.identity.cluster_id)
        try:
            keeps.settle_in()
        except (OSError, CannotKeep) as error:
            log.error("segments cannot be kept in %s, and until they can logs only grow: %s", path, error)
        return cls(directory, topics, keeps)

    def wants(self, of: PartitionLog) -> bool:
        """Whether segments of this log are handed over at all."""
        return bool(self.keeps or self.takers) and self._name(of).topic in self.topics

    def hand_over(self, of: PartitionLog, segments: Sequence[Segment]) -> bool:
        """Whether these finished segments, oldest first, may be replaced or deleted now.

        From any thread. It waits for the disk and may copy, so not on the event loop. Never raises for what
        is wrong with the archive."""
        if not self.wants(of):
            return True
        name = self._name(of)
        with self._guard:
            try:
                self._hand_over(name, of, segments)
            except Exception as error:
                if of.health.failure is not None or not self._directory.disk.exists(of.directory):
                    return False  # The log itself is offline or deleted, which is told elsewhere.
                self._complain(name, error)
                return False
            if self.failing.pop(name, None) is not None:
                log.info("%s: segments are handed over again", name)
        return True

    def _hand_over(self, name: TopicPartition, of: PartitionLog, segments: Sequence[Segment]) -> None:
        topic_id = self._directory.topic_id(name)
        known, end = self._handed.get(name, (topic_id, -1))
        if known != topic_id:
            end = -1
        new = [each for each in segments if each.size and each.next_offset > end]
        if not new:
            return
        of.sync_finished()
        if of.health.failure is not None:
            raise of.health.refusal()
        if self.keeps is not None:
            self.keeps.begin(name, topic_id, of.end_offset)
        for each in new:
            if self.keeps is not None:
                self.keeps.take(name, each)
            told = Finished(*name, topic_id, each.base_offset, each.next_offset, each.path)
            for taker in self.takers:
                taker(told)
            self._handed[name] = topic_id, each.next_offset

    def _complain(self, name: TopicPartition, error: Exception) -> None:
        """Once for each reason: it is asked again every few seconds."""
        why = f"{type(error).__name__}: {error}"
        if self.failing.get(name) != why:
            self.failing[name] = why
            expected = isinstance(error, OSError | LogError | CannotKeep)
            log.error(
                "%s: segments cannot be handed over, and until they can the log is neither cleaned nor "
                "shortened: %s", name, why, exc_info=None if expected else error,
            )  # fmt: skip
        if self.keeps is not None:
            self.keeps.forget()

    @staticmethod
    def _name(of: PartitionLog) -> TopicPartition:
        match = _FOLDER.match(of.directory.rpartition("/")[2])
        assert match is not None, of.directory
        return TopicPartition(match[1], int(match[2]))


class Kept:
    """A directory of segments that were handed over."""

    def __init__(self, disk: Disk, path: str, cluster_id: str) -> None:
        self._disk = disk
        self.path = path
        self._cluster_id = cluster_id
        self._ready: dict[TopicPartition, str | None] = {}
        self._ends: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        return f"Kept({self.path!r}, {len(self._ends)} partitions)"

    def forget(self) -> None:
        """Look again at what is there: something has failed, and who mends it may have changed it."""
        self._ready.clear()
        self._ends.clear()

    def begin(self, of: TopicPartition, topic_id: str | None, end_offset: int) -> None:
        """Have a place for a partition whose log goes to `end_offset`. OSError, `CannotKeep`."""
        if of not in self._ready or self._ready[of] != topic_id:
            self.settle_in()
            self._ends.pop(of, None)
            self._make_folder(of, topic_id)
            self._ready[of] = topic_id
        end = self.end(of)
        if end_offset < end:
            raise CannotKeep(
                f"{self.path} has {of} up to offset {end}, and the log ends at {end_offset}: it was cut "
                "back; choose another directory"
            )

    def end(self, of: TopicPartition) -> int:
        """Behind the last record that is here; 0 where there is none."""
        if of not in self._ends:
            folder = f"{self.path}/{of}"
            names = [n for n in self._disk.listdir(folder) if re.fullmatch(r"[0-9]{20}\.log", n)]
            self._ends[of] = _end(self._disk, f"{folder}/{names[-1]}") if names else 0
        return self._ends[of]

    def take(self, of: TopicPartition, segment: Segment) -> None:
        """Have all of a segment that is not here, durably. OSError, `LogError`."""
        end, folder = self.end(of), f"{self.path}/{of}"
        if segment.next_offset <= end:
            return
        if segment.base_offset >= end:
            self._take_indexes(segment, folder)
            _place(self._disk, segment.path, f"{folder}/{segment_name(segment.base_offset, '.log')}")
        else:
            # It was cleaned while nobody kept it, together with what is here: what follows upon that.
            with _opened(self._disk, segment.path) as again:
                found = again.locate(end)
            if found is not None:
                _copy(self._disk, segment.path, f"{folder}/{segment_name(end, '.log')}", found[0])
        self._disk.sync_directory(folder)
        self._ends[of] = segment.next_offset

    def _take_indexes(self, segment: Segment, folder: str) -> None:
        """Those that stand beside a segment; where the one of offsets is missing it is made for here."""
        source, stem = segment.path.removesuffix(".log"), f"{folder}/{segment.base_offset:020d}"
        for suffix in BESIDE:
            if self._disk.exists(source + suffix):
                _renew(self._disk, source + suffix, stem + suffix)
        if not self._disk.exists(f"{source}.index"):
            with _opened(self._disk, segment.path) as again:
                replace(self._disk, f"{stem}.index", bytes(again.offsets.data))

    def settle_in(self) -> None:
        """Make the directory, or see whose it is. OSError, `CannotKeep`."""
        meta = f"{self.path}/{META_NAME}"
        make_directory(self._disk, self.path)
        if not self._disk.exists(meta):
            replace(self._disk, meta, f"version=1\ncluster.id={self._cluster_id}\nnode.id=-1\n".encode())
            return
        found = _CLUSTER.search(self._disk.read(meta).decode("utf-8", "replace"))
        if found is None or found[1].strip() != self._cluster_id:
            theirs = found[1].strip() if found else "no cluster"
            raise CannotKeep(
                f"{self.path} has logs of cluster {theirs}, this one is {self._cluster_id}: "
                "back; choose another directory"
            )

    def _make_folder(self, of: TopicPartition, topic_id: str | None) -> None:
        """The folder of a partition. One of another topic of the same name steps aside, as a stray."""
        folder = f"{self.path}/{of}"
        there = f"{folder}/{TOPIC_ID_NAME}"
        if topic_id is not None and self._disk.exists(there):
            found = _TOPIC_ID.search(self._disk.read(there).decode("ascii", "replace"))
            known = found[1].strip() if found else ""
            if known != topic_id:
                token = re.sub("[^0-9a-zA-Z]", "", known) or "unknown"
                self._disk.rename(folder, f"{self.path}/{of}.{token}-stray")
                self._disk.sync_directory(self.path)
        make_directory(self._disk, folder)
        for name in self._disk.listdir(folder):
            if name.endswith(DRAFT):  # A crash left it.
                self._disk.remove(f"{folder}/{name}")
        if topic_id is not None and not self._disk.exists(there):
            replace(self._disk, there, f"version: 0\ntopic_id: {topic_id}".encode())


@contextlib.contextmanager
def _opened(disk: Disk, path: str) -> Iterator[Segment]:
    """A segment of our own: in that of a log others look things up meanwhile, in another thread."""
    folder, _, name = path.rpartition("/")
    segment = Segment.found(disk, folder, int(name[:20]), _INDEX_INTERVAL)
    try:
        yield segment
    finally:
        segment.file.close()


def _end(disk: Disk, path: str) -> int:
    """Behind the last batch of a segment. `DamagedLog`."""
    with _opened(disk, path) as segment:
        end = segment.base_offset
        for header, _ in segment.scan(segment.offsets.batch_before(segment.size)):
            end = header.next_offset
    return end


def _renew(disk: Disk, source: str, target: str) -> None:
    """As `_place`, where something that a crash left may be in the way."""
    if disk.exists(target):
        disk.remove(target)
    _place(disk, source, target)


def _place(disk: Disk, source: str, target: str) -> None:
    """A second name for a file, or a second file."""
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        _copy(disk, source, target)


def _copy(disk: Disk, source: str, target: str, position: int = 0) -> None:
    """A file from `position` on, there when it is whole. Where it fails nothing is left of it."""
    draft = target + DRAFT
    old, new = disk.open(source), disk.open(draft, create=True)
    try:
        while chunk := old.pread(CHUNK_BYTES, position):
            new.append(chunk)
            position += len(chunk)
        new.sync()
        disk.set_modified_ms(draft, disk.modified_ms(source))
        new.close()
        disk.rename(draft, target)
    except BaseException:
        new.close()
        with contextlib.suppress(OSError):
            disk.remove(draft)
        raise
    finally:
        old.close()
