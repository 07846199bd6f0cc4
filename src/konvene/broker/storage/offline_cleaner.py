"""Cleans the compacted logs of a data directory without a broker, for `konvene log clean`.

It selects logs, cleans them and swaps in segments as the broker's cleaner does, one log after the other. The
metadata log in the data directory has the configs of topics, and thereby which ones are compacted; a
properties file can add the broker's settings. Without a metadata log, only the topics of the group and
transaction coordinators are known to be compacted. All other topics are left alone.

A dry run uses a disk that keeps all changes in memory (`konvene.log.disk.overlay`), so that it can examine
the files of a running broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.broker.storage.archive import Archive
from konvene.broker.storage.partitions import log_config
from konvene.cluster.catalogue import Catalogue
from konvene.cluster.state import CatalogueState, ResourceType
from konvene.codec.batches import records
from konvene.codec.errors import CodecError
from konvene.configs import BrokerConfig
from konvene.configs.effective import topic_values
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CleanerProgress, CleanerStats, CleaningTask
from konvene.log.cleaner.segment_swap import (
    abort_cleaning,
    begin_cleaning,
    finish_cleaning,
    remove_deleted,
    swap_durably,
)
from konvene.log.cleaner.selection import LogToClean, cleaning_task, log_to_clean
from konvene.log.config import LogConfig
from konvene.log.directory import META_NAME, Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import Disk, RealDisk
from konvene.log.disk.overlay import OverlayDisk
from konvene.log.disk.read_only import ReadOnlyDisk
from konvene.log.errors import DamagedLog
from konvene.log.inspect.dump import Batch, base_offset_of, find, walk
from konvene.log.partition import PartitionLog
from konvene.runtime.environment import SYSTEM

__all__ = ["CleaningResult", "CleaningTarget", "NotCompacted", "OfflineCleaner"]

COMPACTED = {OFFSETS_TOPIC: {"cleanup.policy": "compact"}, TRANSACTION_TOPIC: {"cleanup.policy": "compact"}}
"""Topics that are known to be compacted if the metadata log is missing, with their configs."""

OnProgress = Callable[[int, str], None]
"""Called with the number of bytes that were read since the last call, and the partition's name."""


class NotCompacted(Exception):
    """A requested topic does not exist or is not compacted."""


class CleaningTarget(NamedTuple):
    """A topic to be cleaned, or one partition of it; `partition` None means all."""

    topic: str
    partition: int | None = None


@dataclass(slots=True)
class CleaningResult:
    """What the cleanings of a partition changed: figures before and after, or why it was not cleaned."""

    topic_partition: TopicPartition
    initial: LogToClean | None = None
    """How dirty the log was before the first cleaning."""
    segments: int = 0
    segments_after: int = 0
    bytes: int = 0
    stats: list[CleanerStats] = field(default_factory=list)
    """Statistics of each cleaning; there are several if the key map was full."""
    damage: str | None = None
    unfinished: str | None = None
    """Why the log is still dirty, None if it is not."""

    @property
    def dirty(self) -> float:
        return 0.0 if self.initial is None else self.initial.ratio

    @property
    def records(self) -> int | None:
        """Return the number of records before the first cleaning; None if there was no cleaning."""
        if not self.stats:
            return None
        *earlier, last = self.stats
        return last.messages_read + sum(s.messages_read - s.messages_written for s in earlier)

    @property
    def records_after(self) -> int | None:
        return self.stats[-1].messages_written if self.stats else None

    @property
    def bytes_after(self) -> int:
        return self.bytes - sum(s.bytes_read - s.bytes_written for s in self.stats)

    @property
    def tombstones(self) -> int:
        return sum(s.tombstones_removed for s in self.stats)

    @property
    def markers(self) -> int:
        return sum(s.markers_removed for s in self.stats)


class OfflineCleaner:
    """A context manager that opens a data directory and cleans its logs.

    Before segments are replaced, those of all topics are archived in the directory `archive`; if it is None,
    the configured archive receives those of its topics. Raises `DirectoryLocked` if a broker uses the data
    directory, unless this is a dry run; also `LogError` and OSError."""

    def __init__(self, path: str, config: BrokerConfig, *, dry_run: bool, archive: str | None = None) -> None:
        self.dry_run = dry_run
        self._state = _catalogue(path)
        self._now_ms = SYSTEM.wall_clock_ms()
        disk: Disk = OverlayDisk() if dry_run else RealDisk()
        node_id = Identity.decode(ReadOnlyDisk().read(f"{path}/{META_NAME}")).node_id
        altered = self._state.configs
        self._config, _ = config.with_dynamic(
            altered.get((ResourceType.BROKER, ""), {}), altered.get((ResourceType.BROKER, str(node_id)), {})
        )
        self._directory = LogDirectory.open(disk, path, Identity("", node_id, ""))
        try:
            self._archive = self._archive_at(archive)
        except BaseException:
            self.close()
            raise

    def _archive_at(self, path: str | None) -> Archive:
        if path is None:
            return Archive.of(self._config, self._directory)
        topics = {partition.topic for partition in self._directory.partitions()}
        return Archive.at(path, self._directory, topics)

    def __repr__(self) -> str:
        return f"<offline cleaner of {self._directory!r}{', dry' if self.dry_run else ''}>"

    def __enter__(self) -> OfflineCleaner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close and unlock the data directory.

        It is marked as cleanly closed only if it was so before, because not all logs were opened."""
        self._directory.close(clean=self._directory.clean and not self.dry_run)

    def select(self, targets: list[CleaningTarget]) -> list[tuple[TopicPartition, LogConfig]]:
        """Return the compacted partitions of `targets`, or all compacted ones without targets, with configs.

        Raises `NotCompacted` if a target does not exist or is not compacted."""
        selected = []
        partitions = self._directory.partitions()
        for target in targets:
            if not any(_matches(target, partition) for partition in partitions):
                name = target.topic if target.partition is None else f"{target.topic}:{target.partition}"
                raise NotCompacted(f"{self._directory.path} has no {name}")
            config = self._log_config(target.topic)
            if config is None or not config.compacts:
                policy = "is unknown" if config is None else "does not include compact"
                raise NotCompacted(f"the cleanup.policy of {target.topic} {policy}: it is not cleaned")
        for partition in partitions:
            if targets and not any(_matches(target, partition) for target in targets):
                continue
            config = self._log_config(partition.topic)
            if config is not None and config.compacts:
                selected.append((partition, config))
        return selected

    def clean(
        self, topic_partition: TopicPartition, config: LogConfig, on_progress: OnProgress
    ) -> CleaningResult:
        """Clean a partition as far as possible; return what changed.

        If damage is found in the log, cleaning ends, and the result describes the damage."""
        result = CleaningResult(topic_partition)
        try:
            log = self._directory.load(topic_partition, config, self._now_ms)
            result.segments = result.segments_after = len(log.segments)
            result.bytes = log.size
            for task in self._tasks(log, result):
                if not self._hand_over(log, task):
                    reason = self._archive.failing.get(topic_partition, "")
                    result.unfinished = f"cannot archive its segments: {reason}"
                    break
                stats = self._carry_out(
                    log, topic_partition, task, lambda count: on_progress(count, str(topic_partition))
                )
                result.stats.append(stats)
                result.segments_after -= sum(len(group.replaces) - 1 for group in stats.segments)
            if not self.dry_run:
                remove_deleted(log, self._now_ms)
                remove_deleted(log, self._now_ms + config.file_delete_delay_ms)
        except DamagedLog as damage:
            result.damage = str(damage)
        return result

    def _tasks(self, log: PartitionLog, result: CleaningResult) -> Iterator[CleaningTask]:
        """Yield cleanings until the log is clean: several if the key map cannot hold all keys at once.

        Sets `initial` of the result, and `unfinished` if the log stays dirty."""
        map_bytes = int(
            self._config["log.cleaner.dedupe.buffer.size"] * self._config["log.cleaner.io.buffer.load.factor"]
        )
        cleaned_to: int | None = self._directory.cleaned_to(result.topic_partition)
        while True:
            candidate = log_to_clean(log, cleaned_to, log.end_offset, self._now_ms)
            result.initial = result.initial or candidate
            if not candidate.cleanable_bytes:
                return
            yield cleaning_task(log, candidate, log.end_offset, self._now_ms, map_bytes)
            if not result.stats or result.unfinished:
                return
            end = result.stats[-1].end_offset
            if end < candidate.first_uncleanable_offset and (self.dry_run or end == cleaned_to):
                result.unfinished = f"the key map is full at offset {end}: the next cleaning continues there"
                return
            if end >= candidate.first_uncleanable_offset:
                return
            cleaned_to = end

    def _hand_over(self, log: PartitionLog, task: CleaningTask) -> bool:
        """Hand the segments that a task replaces to the archive; return True if they may be replaced."""
        if self.dry_run:
            return True
        bases = {source.base_offset for source in task.sources}
        return self._archive.hand_over(log, [s for s in log.segments if s.base_offset in bases])

    def _carry_out(
        self,
        log: PartitionLog,
        topic_partition: TopicPartition,
        task: CleaningTask,
        on_bytes_read: Callable[[int], None],
    ) -> CleanerStats:
        if not self.dry_run:
            begin_cleaning(self._directory, topic_partition, task)
        steps = clean(self._directory.disk, task, write=not self.dry_run)
        try:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    stats: CleanerStats = end.value
                    break
                if isinstance(step, CleanerProgress):
                    on_bytes_read(step.bytes_read)
                elif not self.dry_run:
                    swap_durably(log, step)
        except BaseException:
            steps.close()
            if not self.dry_run:
                abort_cleaning(log)
            raise
        if not self.dry_run:
            finish_cleaning(log)
            self._directory.set_cleaned_offset(topic_partition, stats.end_offset)
        return stats

    def _log_config(self, topic: str) -> LogConfig | None:
        """Return the config of a topic's logs; None if the topic is unknown."""
        configs = self._state.configs.get((ResourceType.TOPIC, topic), {})
        if topic not in self._state.topics:
            if topic not in COMPACTED:
                return None
            configs = COMPACTED[topic]
        values = topic_values(self._config, configs)
        return log_config(values, self._config["producer.id.expiration.ms"])


def _matches(target: CleaningTarget, partition: TopicPartition) -> bool:
    return partition.topic == target.topic and target.partition in (None, partition.partition)


def _catalogue(path: str) -> CatalogueState:
    """Return the catalogue's state, replayed from the metadata log in `path` as far as that can be read."""
    from konvene.records.cluster_log import decode_cluster_record

    catalogue, disk = Catalogue(), ReadOnlyDisk()
    folder = f"{path}/{CLUSTER_METADATA_TOPIC}-0"
    for found in find(disk, folder) if disk.exists(folder) else ():
        for name in found.logs:
            file = disk.open(f"{found.path}/{name}")
            try:
                for part in walk(file, file.size(), base_offset_of(name)):
                    if not isinstance(part, Batch) or part.header.is_control:
                        continue
                    for record in records(part.view, part.header):
                        try:
                            catalogue.replay(decode_cluster_record(record.key, record.value))
                        except CodecError:
                            continue  # A record type of Kafka without a declaration here.
            finally:
                file.close()
    return catalogue.state
