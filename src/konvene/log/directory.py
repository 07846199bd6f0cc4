"""Everything under one `log.dir`: whose it is, which partitions it holds, how it was left.

Decides who may use the directory (one process at a time, of one cluster and node), whether it
was closed properly, where each log's recovery and start lie, and how far it was cleaned. The
files are Kafka's: `.lock`, `meta.properties`, `.kafka_cleanshutdown`, those of `checkpoints`,
and a folder `topic-N` for each partition, which a deletion first renames to
`topic-N.<token>-delete`, so that a crash leaves it whole or doomed.

The order that makes this safe: the mark of a clean close is removed before anything is
written, and written after everything else is durable; a recovery point is written after
the bytes before it are durable, and lowered before bytes are cut.

Names become paths here and nowhere else: only legal topic names do.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from konvene.codec.errors import Malformed
from konvene.log import summary
from konvene.log.checkpoints import (
    CLEANED_OFFSETS,
    RECOVERY_POINTS,
    START_OFFSETS,
    TopicPartition,
    encode_checkpoint,
    read_checkpoint,
)
from konvene.log.closing import forget_written, is_written_down, write_down
from konvene.log.config import LogConfig
from konvene.log.disk.files import Disk, Lock, make_directory, replace
from konvene.log.errors import DamagedLog, LogError, LogGone, LogOffline, WrongDirectory
from konvene.log.opening import open_log
from konvene.log.partition import Health, PartitionLog
from konvene.log.recovery import Recovered
from konvene.log.summary import LeftLog, leave
from konvene.log.truncating import end_if_cut

__all__ = [
    "CLEANED_OFFSETS", "CLEAN_MARK", "LOCK_NAME", "META_NAME", "RECOVERY_POINTS", "START_OFFSETS",
    "TOPIC_ID_NAME", "ConfigOf", "Identity", "LogDirectory", "TopicPartition", "encode_checkpoint",
    "read_checkpoint",
]  # fmt: skip

CLEAN_MARK = ".kafka_cleanshutdown"
LOCK_NAME = ".lock"
META_NAME = "meta.properties"
TOPIC_ID_NAME = "partition.metadata"

MANY = 64
"""So many logs are made durable at one stroke rather than one by one."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_DOOMED = re.compile(r".+\.[0-9a-zA-Z]+-delete\Z")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose directory it is (`meta.properties`, version 1)."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        rows = ("version=1", f"cluster.id={self.cluster_id}", f"node.id={self.node_id}")
        return "\n".join([*rows, f"directory.id={self.directory_id}", ""]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """`Malformed` unless it is such a file."""
        rows = dict(
            line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines() if "=" in line[1:]
        )
        try:
            if rows["version"].strip() != "1":
                raise Malformed(f"meta.properties of version {rows['version']}")
            return cls(rows["cluster.id"].strip(), int(rows["node.id"]), rows.get("directory.id", "").strip())
        except (KeyError, ValueError) as error:
            raise Malformed(f"meta.properties: {error}") from None


ConfigOf = Callable[[TopicPartition], LogConfig]


class LogDirectory:
    """A locked directory and its logs. Make one with `open`, then `load` (or `load_all`)."""

    def __init__(self, disk: Disk, path: str, lock: Lock, identity: Identity, clean: bool) -> None:
        self.disk = disk
        self.path = path
        self.identity = identity
        #: Whether the last process closed it properly.
        self.clean = clean
        self.health = Health()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.recovered: dict[TopicPartition, Recovered] = {}
        #: Partitions that are offline because their bytes are damaged, and how.
        self.damaged: dict[TopicPartition, DamagedLog] = {}
        self._lock = lock
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        #: Hears of each partition that was opened, or could not be.
        self.told: Callable[[TopicPartition], None] = lambda _partition: None
        self._left: dict[str, LeftLog] = {}
        #: Whether all that the last process wrote is known to be durable.
        self._settled = False

    def __repr__(self) -> str:
        state = "offline" if self.health.failure is not None else "online"
        return f"LogDirectory({self.path}: {state}, {len(self.logs)} logs, {len(self.damaged)} damaged)"

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> LogDirectory:
        """Lock the directory (made if it is not there) and read what it says of itself.

        `DirectoryLocked` if another process has it, `WrongDirectory` if it is another cluster's or
        node's, `LogOffline` if it cannot be written. An empty `cluster_id` or `directory_id` of
        `identity` takes what is there.
        """
        try:
            make_directory(disk, path)
            lock = disk.lock(f"{path}/{LOCK_NAME}")
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            return cls._open(disk, path, lock, identity)
        except OSError as error:
            lock.release()
            raise _unusable(path, error) from error
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open(cls, disk: Disk, path: str, lock: Lock, identity: Identity) -> LogDirectory:
        identity = _identify(disk, path, identity)
        clean = disk.exists(f"{path}/{CLEAN_MARK}")
        left = _take_marks(disk, path) if clean else {}
        directory = cls(disk, path, lock, identity, clean)
        directory._left = left
        directory._recovery_points = read_checkpoint(disk, f"{path}/{RECOVERY_POINTS}")
        directory._start_offsets = read_checkpoint(disk, f"{path}/{START_OFFSETS}")
        with contextlib.suppress(DamagedLog):  # It saves work and decides nothing.
            directory._cleaned = read_checkpoint(disk, f"{path}/{CLEANED_OFFSETS}")
        folders = disk.folders(path)
        for name in folders:
            if _DOOMED.match(name):
                directory._remove_folder(name)
        disk.sync_directory(path)
        directory._forget_the_gone()
        directory._settled = not clean and len(folders) >= MANY and disk.settle(path)
        return directory

    def partitions(self) -> list[TopicPartition]:
        """What is there, by topic and number."""
        try:
            matches = [_FOLDER.match(name) for name in self.disk.folders(self.path)]
        except OSError as error:
            self.health.fail(f"cannot list {self.path}", error)
        return sorted(TopicPartition(match[1], int(match[2])) for match in matches if match)

    def load(self, partition: TopicPartition, config: LogConfig, now_ms: int) -> PartitionLog:
        """Open one partition's log, recovering it where needed; `recovered` remembers what was done.

        `DamagedLog` (remembered in `damaged`) where a person has to decide, see `recovery`.
        """
        known = self.logs.get(partition)
        if known is not None:
            return known
        try:
            log, found = open_log(
                self.disk,
                self._folder(partition),
                config,
                clean=self.clean,
                now_ms=now_ms,
                start_offset=self._start_offsets.get(partition, 0),
                recovery_point=self._recovery_points.get(partition, 0),
                cleaned_to=self._cleaned.get(partition, 0),
                settled=self._settled,
                left=self._left.pop(str(partition), None),
                health=self.health,
            )
        except DamagedLog as damage:
            self.damaged[partition] = damage
            raise
        finally:
            self.told(partition)
        self.damaged.pop(partition, None)
        self.logs[partition] = log
        self.recovered[partition] = found
        return log

    def load_all(self, config_of: ConfigOf, now_ms: int) -> dict[TopicPartition, PartitionLog]:
        """Open every partition that is there. Damaged ones stay offline, in `damaged`."""
        for partition in self.partitions():
            try:
                self.load(partition, config_of(partition), now_ms)
            except DamagedLog:
                continue
        return self.logs

    # partitions that come and go --------------------------------------------------------------

    def create(
        self,
        partitions: Iterable[TopicPartition],
        config: LogConfig,
        now_ms: int,
        *,
        topic_id: str | None = None,
    ) -> list[PartitionLog]:
        """Folders and empty logs for new partitions, durable on return. One that is there is loaded.

        `topic_id` (Kafka's text form of the UUID) is kept in each folder's `partition.metadata`.
        """
        wanted = list(partitions)
        if self.health.failure is not None:
            raise self.health.refusal()
        try:
            if len(wanted) < MANY:
                for partition in wanted:
                    self._make_folder(partition, topic_id)
            else:
                # Each waits for the disk, and the disk does not mind to be waited for by several.
                with ThreadPoolExecutor(8, thread_name_prefix="konvene-create") as pool:
                    for _ in pool.map(lambda partition: self._make_folder(partition, topic_id), wanted):
                        pass
            made = [self.load(partition, config, now_ms) for partition in wanted]
            self.disk.sync_directory(self.path)
        except OSError as error:
            self.health.fail(f"cannot create partitions in {self.path}", error)
        return made

    def _make_folder(self, partition: TopicPartition, topic_id: str | None) -> None:
        folder = self._folder(partition)
        self.disk.mkdir(folder)
        if topic_id is not None and not self.disk.exists(f"{folder}/{TOPIC_ID_NAME}"):
            replace(self.disk, f"{folder}/{TOPIC_ID_NAME}", f"version: 0\ntopic_id: {topic_id}".encode())

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The topic id that a partition's folder was made for; None if it does not say."""
        path = f"{self._folder(partition)}/{TOPIC_ID_NAME}"
        if not self.disk.exists(path):
            return None
        for line in self.disk.read(path).decode("ascii", "replace").splitlines():
            name, _, value = line.partition(":")
            if name == "topic_id":
                return value.strip()
        return None

    def delete(self, partition: TopicPartition, token: str) -> None:
        """Delete one partition for good. `token` (letters and digits) makes the doomed name unique."""
        if not re.fullmatch(r"[0-9a-zA-Z]{1,40}", token):
            raise ValueError(f"{token!r} cannot be part of a folder's name")
        folder = self._folder(partition)
        log = self.logs.pop(partition, None)
        self.damaged.pop(partition, None)
        self.recovered.pop(partition, None)
        # First: a folder made again under this name must not inherit a recovery point.
        self.checkpoint(without=partition)
        doomed = f"{str(partition)[: 255 - len(token) - 8]}.{token}-delete"
        try:
            if partition in self._cleaned:
                self._say_cleaned(partition, None)
            if log is not None:
                log.abandon()
            self.disk.rename(folder, f"{self.path}/{doomed}")
            self.disk.sync_directory(self.path)
            self._remove_folder(doomed)
        except OSError as error:
            self.health.fail(f"cannot delete {folder}", error)

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log's end back to `offset`, its recovery point first."""
        log = self.logs[partition]
        if offset >= log.end_offset:
            return
        points = self._points()
        try:
            end = end_if_cut(log, max(offset, log.start_offset))[2]
            points[partition] = min(points.get(partition, 0), end)
            self._write(RECOVERY_POINTS, points)
            if self._cleaned.get(partition, 0) > end:
                self._say_cleaned(partition, end)
        except OSError as error:
            self.health.fail(f"cannot checkpoint {self.path}", error)
        self._recovery_points = points
        log.truncate_to(offset)

    # what was cleaned --------------------------------------------------------------------------

    def cleaned_to(self, partition: TopicPartition) -> int | None:
        """Where the last cleaning of a log ended; None where there was none."""
        return self._cleaned.get(partition)

    def note_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """All before `offset` has been cleaned, and is in place. `LogOffline` if that cannot be written."""
        if self.health.failure is not None:
            raise self.health.refusal()
        if partition in self.logs and self._cleaned.get(partition) != offset:
            try:
                self._say_cleaned(partition, offset)
            except OSError as error:
                self.health.fail(f"cannot checkpoint {self.path}", error)

    def reach(self, partition: TopicPartition, offset: int) -> None:
        """Let the recovery point on the disk be at `offset` or behind, which is durable. `LogOffline`."""
        known, durable = self._recovery_points.get(partition, 0), self.logs[partition].synced_offset
        if durable < offset:
            raise ValueError(f"{partition} is durable only up to {durable}, not to {offset}")
        if known < offset:
            points = {**self._recovery_points, partition: durable}
            try:
                self._write(RECOVERY_POINTS, points)
            except OSError as error:
                self.health.fail(f"cannot checkpoint {self.path}", error)
            self._recovery_points = points

    def _say_cleaned(self, partition: TopicPartition, offset: int | None) -> None:
        cleaned = {known: at for known, at in self._cleaned.items() if known != partition}
        if offset is not None:
            cleaned[partition] = offset
        self._write(CLEANED_OFFSETS, cleaned)
        self._cleaned = cleaned

    # how it is left ----------------------------------------------------------------------------

    def sync_finished(self) -> None:
        """Make the finished segments of all logs durable: for topics that nobody syncs. From any thread."""
        for log in list(self.logs.values()):
            with contextlib.suppress(LogGone):
                log.sync_finished()

    def checkpoint(self, *, without: TopicPartition | None = None) -> None:
        """Write down how far each log is durable and where it starts: less to read after a crash.

        Nothing is said any more of the partition `without`.
        """
        if self.health.failure is not None:
            raise self.health.refusal()
        points = self._points()
        starts = dict(self._start_offsets)
        for partition, log in self.logs.items():
            first = log.segments[0].base_offset
            if log.start_offset > first:
                starts[partition] = log.start_offset
            else:
                starts.pop(partition, None)
        if without is not None:
            points.pop(without, None)
            starts.pop(without, None)
        try:
            if points != self._recovery_points:
                self._write(RECOVERY_POINTS, points)
                self._recovery_points = points
            if starts != self._start_offsets:
                self._write(START_OFFSETS, starts)
                self._start_offsets = starts
        except OSError as error:
            self.health.fail(f"cannot checkpoint {self.path}", error)

    def close(self, *, clean: bool = True) -> None:
        """Close every log, and say so if all of them could be closed properly. Releases the lock."""
        try:
            if clean and self.health.failure is None:
                self._write_down_many()
            for log in self.logs.values():
                log.close(clean=clean)
            if clean and self.health.failure is None:
                self.checkpoint()
                if not self.damaged:
                    self._leave_marks()
        except LogError:
            clean = False
            for log in self.logs.values():
                log.close(clean=False)
            raise
        except OSError as error:
            self.health.fail(f"cannot close {self.path}", error)
        finally:
            self._lock.release()

    def _write_down_many(self) -> None:
        """Where much is to be written, all of it at one stroke: first the data, then what is derived from it.

        What could not be had this way is done by each log's own `close`, file by file. That also asks each
        log for its own data: it costs little by then, and it is the only call that tells of a failure."""
        changed = [log for log in self.logs.values() if not is_written_down(log)]
        if len(changed) < MANY or not self.disk.settle(self.path):
            return
        for log in changed:
            write_down(log, durably=False)
        if not self.disk.settle(self.path):
            for log in changed:
                forget_written(log)

    def _leave_marks(self) -> None:
        """The mark of a clean close, and the summary that it vouches for."""
        rows = ((str(partition), leave(log, self.disk)) for partition, log in self.logs.items())
        data = summary.encode((name, row) for name, row in rows if row is not None)
        replace(self.disk, f"{self.path}/{summary.NAME}", data)
        mark = {"version": 0, "brokerEpoch": -1, "konvene.summary.crc": summary.crc_of(data)}
        replace(self.disk, f"{self.path}/{CLEAN_MARK}", json.dumps(mark, separators=(",", ":")).encode())

    def _forget_the_gone(self) -> None:
        """Say nothing of folders that are not there: one made under such a name begins anew."""
        there = set(self.partitions())
        for name, offsets in (
            (RECOVERY_POINTS, self._recovery_points),
            (START_OFFSETS, self._start_offsets),
            (CLEANED_OFFSETS, self._cleaned),
        ):
            gone = [partition for partition in offsets if partition not in there]
            for partition in gone:
                del offsets[partition]
            if gone:
                self._write(name, offsets)

    def _points(self) -> dict[TopicPartition, int]:
        points = dict(self._recovery_points)
        for partition, log in self.logs.items():
            points[partition] = log.synced_offset
        return points

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        replace(self.disk, f"{self.path}/{name}", encode_checkpoint(offsets))

    def _folder(self, partition: TopicPartition) -> str:
        if not _TOPIC.match(partition.topic) or partition.topic in (".", "..") or partition.partition < 0:
            raise ValueError(f"{partition!r} is no name for a folder")
        return f"{self.path}/{partition}"

    def _remove_folder(self, name: str) -> None:
        folder = f"{self.path}/{name}"
        for inside in self.disk.listdir(folder):
            self.disk.remove(f"{folder}/{inside}")
        self.disk.rmdir(folder)


def _unusable(path: str, error: OSError) -> LogOffline:
    return LogOffline(f"cannot use {path} for data: {error.strerror or error} ({error.filename or path})")


def _take_marks(disk: Disk, path: str) -> dict[str, LeftLog]:
    """Remove the mark of a clean close; what was left beside it, nothing if it is not this mark's."""
    mark = disk.read(f"{path}/{CLEAN_MARK}")
    disk.remove(f"{path}/{CLEAN_MARK}")
    name = f"{path}/{summary.NAME}"
    if not disk.exists(name):
        return {}
    data = disk.read(name)
    disk.remove(name)
    try:
        if json.loads(mark)["konvene.summary.crc"] == summary.crc_of(data):
            return summary.decode(data)
    except (ValueError, KeyError, TypeError, Malformed):  # Kafka's mark, of this version or an older one
        pass
    return {}


def _identify(disk: Disk, path: str, wanted: Identity) -> Identity:
    meta = f"{path}/{META_NAME}"
    if not disk.exists(meta):
        replace(disk, meta, wanted.encode())
        return wanted
    found = Identity.decode(disk.read(meta))
    if (wanted.cluster_id and found.cluster_id != wanted.cluster_id) or found.node_id != wanted.node_id:
        raise WrongDirectory(
            f"{path} belongs to node {found.node_id} of cluster {found.cluster_id}, "
            f"not to node {wanted.node_id} of cluster {wanted.cluster_id}"
        )
    return found
