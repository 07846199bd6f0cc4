"""One `log.dir`: its lock, identity, checkpoints and partition logs.

A directory belongs to one node of one cluster and is used by one process at a time. This module detects
whether the last process shut down cleanly, and stores each log's recovery point, start offset and cleaner
progress. The files are Kafka's: `.lock`, `meta.properties`, `.kafka_cleanshutdown`, the files of
`checkpoints`, and a folder `topic-N` for each partition. A deletion first renames the folder to
`topic-N.<token>-delete`, so that a crash leaves it either whole or deleted.

Crash safety depends on the order of writes: the clean-shutdown marker is removed before anything is written
and written after everything else is durable; a recovery point is written after the bytes below it are durable
and lowered before bytes are truncated.

Partition names become paths only here, and only legal topic names do.
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
from konvene.log.closing import has_closing_files, invalidate_closing_files, write_closing_files
from konvene.log.config import LogConfig
from konvene.log.disk.files import Disk, Lock, make_directory, replace
from konvene.log.errors import DamagedLog, LogDeleted, LogError, LogOffline, WrongDirectory
from konvene.log.opening import LogCheckpoints, open_log
from konvene.log.partition import Health, PartitionLog
from konvene.log.recovery import RecoveryResult
from konvene.log.summary import LogSummary, summarize
from konvene.log.truncating import end_after_truncation

__all__ = [
    "CLEANED_OFFSETS", "CLEAN_MARK", "LOCK_NAME", "META_NAME", "RECOVERY_POINTS", "START_OFFSETS",
    "TOPIC_ID_NAME", "ConfigOf", "Identity", "LogDirectory", "TopicPartition", "encode_checkpoint",
    "read_checkpoint",
]  # fmt: skip

CLEAN_MARK = ".kafka_cleanshutdown"
LOCK_NAME = ".lock"
META_NAME = "meta.properties"
TOPIC_ID_NAME = "partition.metadata"

BULK_LOGS = 64
"""From this number of logs on, one sync of the file system replaces a sync of each file."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_DELETED_FOLDER = re.compile(r".+\.[0-9a-zA-Z]+-delete\Z")


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster, node and directory id of a `log.dir` (`meta.properties`, version 1)."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        rows = ("version=1", f"cluster.id={self.cluster_id}", f"node.id={self.node_id}")
        return "\n".join([*rows, f"directory.id={self.directory_id}", ""]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Decode `meta.properties`. Raises `Malformed` if a property is missing or invalid."""
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
    """A locked directory and its logs. Create it with `open`, then call `load` or `load_all`."""

    def __init__(self, disk: Disk, path: str, lock: Lock, identity: Identity, clean: bool) -> None:
        self.disk = disk
        self.path = path
        self.identity = identity
        #: True if the last process shut down cleanly.
        self.clean = clean
        self.health = Health()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.recovered: dict[TopicPartition, RecoveryResult] = {}
        #: Partitions that are offline because their bytes are damaged.
        self.damaged: dict[TopicPartition, DamagedLog] = {}
        self._lock = lock
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        #: Called with each partition that was opened or failed to open.
        self.on_loaded: Callable[[TopicPartition], None] = lambda _partition: None
        self._summaries: dict[str, LogSummary] = {}
        #: True if everything that the last process wrote is known to be durable.
        self._settled = False

    def __repr__(self) -> str:
        state = "offline" if self.health.failure is not None else "online"
        return f"LogDirectory({self.path}: {state}, {len(self.logs)} logs, {len(self.damaged)} damaged)"

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> LogDirectory:
        """Lock the directory, creating it if missing, and read its identity and checkpoints.

        An empty `cluster_id` or `directory_id` of `identity` accepts the stored one. Raises `DirectoryLocked`
        if another process has the lock, `WrongDirectory` if it belongs to another cluster or node, and
        `LogOffline` if it cannot be written.
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
        summaries = _take_clean_marker(disk, path) if clean else {}
        directory = cls(disk, path, lock, identity, clean)
        directory._summaries = summaries
        directory._recovery_points = read_checkpoint(disk, f"{path}/{RECOVERY_POINTS}")
        directory._start_offsets = read_checkpoint(disk, f"{path}/{START_OFFSETS}")
        # Only an optimisation: without this checkpoint a log is cleaned from its start.
        with contextlib.suppress(DamagedLog):
            directory._cleaned = read_checkpoint(disk, f"{path}/{CLEANED_OFFSETS}")
        folders = disk.folders(path)
        for name in folders:
            if _DELETED_FOLDER.match(name):
                directory._remove_folder(name)
        disk.sync_directory(path)
        directory._drop_missing_partitions()
        directory._settled = not clean and len(folders) >= BULK_LOGS and disk.settle(path)
        return directory

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions in the directory, by topic and number."""
        try:
            matches = [_FOLDER.match(name) for name in self.disk.folders(self.path)]
        except OSError as error:
            self.health.fail(f"cannot list {self.path}", error)
        return sorted(TopicPartition(match[1], int(match[2])) for match in matches if match)

    def load(self, partition: TopicPartition, config: LogConfig, now_ms: int) -> PartitionLog:
        """Open one partition's log, recovering it if needed, and return it; an open log is returned as it is.

        The result of the recovery is stored in `recovered`. Raises `DamagedLog`, which is stored in
        `damaged`, if truncating the log would lose acknowledged records, see `recovery`.
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
                checkpoints=LogCheckpoints(
                    start_offset=self._start_offsets.get(partition, 0),
                    recovery_point=self._recovery_points.get(partition, 0),
                    cleaned_to=self._cleaned.get(partition, 0),
                    settled=self._settled,
                    summary=self._summaries.pop(str(partition), None),
                ),
                health=self.health,
            )
        except DamagedLog as damage:
            self.damaged[partition] = damage
            raise
        finally:
            self.on_loaded(partition)
        self.damaged.pop(partition, None)
        self.logs[partition] = log
        self.recovered[partition] = found
        return log

    def load_all(self, config_of: ConfigOf, now_ms: int) -> dict[TopicPartition, PartitionLog]:
        """Open each partition's log, with its configuration from `config_of`; return the undamaged logs."""
        for partition in self.partitions():
            try:
                self.load(partition, config_of(partition), now_ms)
            except DamagedLog:
                continue
        return self.logs

    # creating and deleting partitions -----------------------------------------------------------

    def create(
        self,
        partitions: Iterable[TopicPartition],
        config: LogConfig,
        now_ms: int,
        *,
        topic_id: str | None = None,
    ) -> list[PartitionLog]:
        """Create folders and empty logs, durable on return; load the log of a partition that exists.

        `topic_id` (the UUID in Kafka's text form) is stored in each folder's `partition.metadata`.
        """
        wanted = list(partitions)
        if self.health.failure is not None:
            raise self.health.refusal()
        try:
            if len(wanted) < BULK_LOGS:
                for partition in wanted:
                    self._make_folder(partition, topic_id)
            else:
                # Each creation waits for the disk; several threads wait at the same time.
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
        """Return the topic id stored in a partition's folder; None if none is stored."""
        path = f"{self._folder(partition)}/{TOPIC_ID_NAME}"
        if not self.disk.exists(path):
            return None
        for line in self.disk.read(path).decode("ascii", "replace").splitlines():
            name, _, value = line.partition(":")
            if name == "topic_id":
                return value.strip()
        return None

    def delete(self, partition: TopicPartition, token: str) -> None:
        """Delete one partition. `token` (letters and digits) makes its folder's name unique meanwhile."""
        if not re.fullmatch(r"[0-9a-zA-Z]{1,40}", token):
            raise ValueError(f"{token!r} cannot be part of a folder's name")
        folder = self._folder(partition)
        log = self.logs.pop(partition, None)
        self.damaged.pop(partition, None)
        self.recovered.pop(partition, None)
        # First: a folder created again under this name must not inherit a recovery point.
        self.checkpoint(without=partition)
        deleted = f"{str(partition)[: 255 - len(token) - 8]}.{token}-delete"
        try:
            if partition in self._cleaned:
                self._write_cleaned_offset(partition, None)
            if log is not None:
                log.abandon()
            self.disk.rename(folder, f"{self.path}/{deleted}")
            self.disk.sync_directory(self.path)
            self._remove_folder(deleted)
        except OSError as error:
            self.health.fail(f"cannot delete {folder}", error)

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Truncate a log to `offset`, lowering its recovery point first."""
        log = self.logs[partition]
        if offset >= log.end_offset:
            return
        points = self._points()
        try:
            end = end_after_truncation(log, max(offset, log.start_offset))[2]
            points[partition] = min(points.get(partition, 0), end)
            self._write(RECOVERY_POINTS, points)
            if self._cleaned.get(partition, 0) > end:
                self._write_cleaned_offset(partition, end)
        except OSError as error:
            self.health.fail(f"cannot checkpoint {self.path}", error)
        self._recovery_points = points
        log.truncate_to(offset)

    # cleaner progress -----------------------------------------------------------------------------

    def cleaned_to(self, partition: TopicPartition) -> int | None:
        """Return the offset below which a log has been cleaned; None if it never was."""
        return self._cleaned.get(partition)

    def set_cleaned_offset(self, partition: TopicPartition, offset: int) -> None:
        """Store that the log is cleaned below `offset`. Raises `LogOffline` if the checkpoint cannot be
        written."""
        if self.health.failure is not None:
            raise self.health.refusal()
        if partition in self.logs and self._cleaned.get(partition) != offset:
            try:
                self._write_cleaned_offset(partition, offset)
            except OSError as error:
                self.health.fail(f"cannot checkpoint {self.path}", error)

    def raise_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Store `offset` as a log's recovery point, unless that is higher already.

        The log must be durable up to `offset`. Raises `LogOffline` if the checkpoint cannot be written.
        """
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

    def _write_cleaned_offset(self, partition: TopicPartition, offset: int | None) -> None:
        cleaned = {known: at for known, at in self._cleaned.items() if known != partition}
        if offset is not None:
            cleaned[partition] = offset
        self._write(CLEANED_OFFSETS, cleaned)
        self._cleaned = cleaned

    # checkpoints and closing -------------------------------------------------------------------------

    def sync_finished(self) -> None:
        """Make the finished segments of all logs durable, for topics whose appends are not synced.

        May run on any thread.
        """
        for log in list(self.logs.values()):
            with contextlib.suppress(LogDeleted):
                log.sync_finished()

    def checkpoint(self, *, without: TopicPartition | None = None) -> None:
        """Store each log's recovery point and start offset, except those of the partition `without`.

        The recovery points limit how much a start has to read after a crash.
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
        """Close every log and release the lock; write the clean-shutdown marker if all closed cleanly.

        With `clean=False` files are only closed.
        """
        try:
            if clean and self.health.failure is None:
                self._write_closing_files_at_once()
            for log in self.logs.values():
                log.close(clean=clean)
            if clean and self.health.failure is None:
                self.checkpoint()
                if not self.damaged:
                    self._write_clean_marker()
        except LogError:
            clean = False
            for log in self.logs.values():
                log.close(clean=False)
            raise
        except OSError as error:
            self.health.fail(f"cannot close {self.path}", error)
        finally:
            self._lock.release()

    def _write_closing_files_at_once(self) -> None:
        """Write the closing files of many logs with two syncs of the file system: one makes the data durable,
        the other the closing files.

        This is only an optimisation. Each log's own `close` syncs its data, which is cheap by then, writes
        what is still missing, and reports failures.
        """
        changed = [log for log in self.logs.values() if not has_closing_files(log)]
        if len(changed) < BULK_LOGS or not self.disk.settle(self.path):
            return
        for log in changed:
            write_closing_files(log, durably=False)
        if not self.disk.settle(self.path):
            for log in changed:
                invalidate_closing_files(log)

    def _write_clean_marker(self) -> None:
        """Write the summary of the logs, and the clean-shutdown marker with the summary's checksum."""
        rows = ((str(partition), summarize(log, self.disk)) for partition, log in self.logs.items())
        data = summary.encode_summary((name, row) for name, row in rows if row is not None)
        replace(self.disk, f"{self.path}/{summary.SUMMARY_NAME}", data)
        mark = {"version": 0, "brokerEpoch": -1, "konvene.summary.crc": summary.summary_crc(data)}
        replace(self.disk, f"{self.path}/{CLEAN_MARK}", json.dumps(mark, separators=(",", ":")).encode())

    def _drop_missing_partitions(self) -> None:
        """Remove checkpoint rows of partitions without a folder, so that they do not apply to a new one."""
        existing = set(self.partitions())
        for name, offsets in (
            (RECOVERY_POINTS, self._recovery_points),
            (START_OFFSETS, self._start_offsets),
            (CLEANED_OFFSETS, self._cleaned),
        ):
            missing = [partition for partition in offsets if partition not in existing]
            for partition in missing:
                del offsets[partition]
            if missing:
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


def _take_clean_marker(disk: Disk, path: str) -> dict[str, LogSummary]:
    """Remove the clean-shutdown marker and the summary; return the summary if the marker has its checksum."""
    mark = disk.read(f"{path}/{CLEAN_MARK}")
    disk.remove(f"{path}/{CLEAN_MARK}")
    name = f"{path}/{summary.SUMMARY_NAME}"
    if not disk.exists(name):
        return {}
    data = disk.read(name)
    disk.remove(name)
    try:
        if json.loads(mark)["konvene.summary.crc"] == summary.summary_crc(data):
            return summary.decode_summary(data)
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
