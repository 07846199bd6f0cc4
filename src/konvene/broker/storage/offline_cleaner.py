"""The broker's cleaner without the broker: what `konvene log clean` does, without a word to anybody.

It is the same choice, the same cleaning, the same swap, one log after the other. Which topics are compacted,
and how, is said by the cluster's own log in the data directory, and by the broker's settings where a file
with them is given. Where the directory has no such log only the two coordinators' topics are known to be
compacted; what is not known to be so is never touched.

A dry run is done on a disk that keeps every change to itself (`konvene.log.disk.overlay`), so it may look at
the
files of a broker that is running.
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

__all__ = ["Cleaned", "Cleaning", "NotCompacted", "Only"]

COMPACTED = {OFFSETS_TOPIC: {"cleanup.policy": "compact"}, TRANSACTION_TOPIC: {"cleanup.policy": "compact"}}
"""What is known of a cluster that does not tell."""

Told = Callable[[int, str], None]


class NotCompacted(Exception):
    """A topic that was named is not there, or nothing of it may be cleaned."""


class Only(NamedTuple):
    """A topic to be cleaned, or one partition of it."""

    topic: str
    partition: int | None = None


@dataclass(slots=True)
class Cleaned:
    """One partition: how it was, and what came of it."""

    of: TopicPartition
    seen: LogToClean | None = None
    segments: int = 0
    segments_after: int = 0
    bytes: int = 0
    stats: list[CleanerStats] = field(default_factory=list)
    """Of each cleaning: there is a second one where the map of keys was full."""
    damage: str | None = None
    left: str | None = None
    """Why there is more to be done."""

    @property
    def dirty(self) -> float:
        return 0.0 if self.seen is None else self.seen.ratio

    @property
    def records(self) -> int | None:
        """In the finished segments. The last cleaning reads what those before it left."""
        if not self.stats:
            return None
        *before, last = self.stats
        return last.messages_read + sum(each.messages_read - each.messages_written for each in before)

    @property
    def records_after(self) -> int | None:
        return self.stats[-1].messages_written if self.stats else None

    @property
    def bytes_after(self) -> int:
        return self.bytes - sum(each.bytes_read - each.bytes_written for each in self.stats)

    @property
    def tombstones(self) -> int:
        return sum(each.tombstones_removed for each in self.stats)

    @property
    def markers(self) -> int:
        return sum(each.markers_removed for each in self.stats)


class Cleaning:
    """One data directory, opened. Use it as a context: `with Cleaning(path, config, dry_run=True) as it`.

    `archive` is where segments of all topics are kept first; else the settings say where, and of which.
    `DirectoryLocked` where a broker has it and this is no dry run, `LogError` and OSError as elsewhere."""

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
        topics = {of.topic for of in self._directory.partitions()}
        return Archive.at(path, self._directory, topics)

    def __repr__(self) -> str:
        return f"<cleaning of {self._directory!r}{', dry' if self.dry_run else ''}>"

    def __enter__(self) -> Cleaning:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others have the directory."""
        # Only who opens all logs may say that all are closed properly, unless that was so before.
        self._directory.close(clean=self._directory.clean and not self.dry_run)

    def wanted(self, only: list[Only]) -> list[tuple[TopicPartition, LogConfig]]:
        """The partitions to be looked at, with their topics' settings. `NotCompacted`."""
        found = []
        there = self._directory.partitions()
        for each in only:
            if not any(p.topic == each.topic and each.partition in (None, p.partition) for p in there):
                name = each.topic if each.partition is None else f"{each.topic}:{each.partition}"
                raise NotCompacted(f"{self._directory.path} has no {name}")
            settings = self._settings(each.topic)
            if settings is None or not settings.compacts:
                policy = "is not known" if settings is None else "does not say compact"
                raise NotCompacted(f"the cleanup.policy of {each.topic} {policy}: nothing of it is cleaned")
        for of in there:
            if only and not any(of.topic == o.topic and o.partition in (None, of.partition) for o in only):
                continue
            settings = self._settings(of.topic)
            if settings is not None and settings.compacts:
                found.append((of, settings))
        return found

    def clean(self, of: TopicPartition, settings: LogConfig, told: Told) -> Cleaned:
        """Clean one partition as far as it can be. A damaged one is left as it is."""
        done = Cleaned(of)
        try:
            log = self._directory.load(of, settings, self._now_ms)
            done.segments = done.segments_after = len(log.segments)
            done.bytes = log.size
            for task in self._tasks(log, done):
                if not self._handed_over(log, task):
                    done.left = f"segments cannot be handed over: {self._archive.failing.get(of, '')}"
                    break
                stats = self._carry_out(log, of, task, lambda count: told(count, str(of)))
                done.stats.append(stats)
                done.segments_after -= sum(len(group.replaces) - 1 for group in stats.segments)
            if not self.dry_run:
                remove_deleted(log, self._now_ms)
                remove_deleted(log, self._now_ms + settings.file_delete_delay_ms)
        except DamagedLog as damage:
            done.damage = str(damage)
        return done

    def _tasks(self, log: PartitionLog, done: Cleaned) -> Iterator[CleaningTask]:
        """One cleaning after the other, while the map of keys does not hold all of them at once."""
        map_bytes = int(
            self._config["log.cleaner.dedupe.buffer.size"] * self._config["log.cleaner.io.buffer.load.factor"]
        )
        reached: int | None = self._directory.cleaned_to(done.of)
        while True:
            seen = log_to_clean(log, reached, log.end_offset, self._now_ms)
            done.seen = done.seen or seen
            if not seen.cleanable_bytes:
                return
            yield cleaning_task(log, seen, log.end_offset, self._now_ms, map_bytes)
            if not done.stats or done.left:
                return
            end = done.stats[-1].end_offset
            if end < seen.first_uncleanable_offset and (self.dry_run or end == reached):
                done.left = f"the map of keys is full at offset {end}: more goes with the next cleaning"
                return
            if end >= seen.first_uncleanable_offset:
                return
            reached = end

    def _handed_over(self, log: PartitionLog, task: CleaningTask) -> bool:
        if self.dry_run:
            return True
        bases = {source.base_offset for source in task.sources}
        return self._archive.hand_over(log, [s for s in log.segments if s.base_offset in bases])

    def _carry_out(
        self, log: PartitionLog, of: TopicPartition, task: CleaningTask, told: Callable[[int], None]
    ) -> CleanerStats:
        if not self.dry_run:
            begin_cleaning(self._directory, of, task)
        steps = clean(self._directory.disk, task, write=not self.dry_run)
        try:
            while True:
                try:
                    said = next(steps)
                except StopIteration as end:
                    stats: CleanerStats = end.value
                    break
                if isinstance(said, CleanerProgress):
                    told(said.bytes_read)
                elif not self.dry_run:
                    swap_durably(log, said)
        except BaseException:
            steps.close()
            if not self.dry_run:
                abort_cleaning(log)
            raise
        if not self.dry_run:
            finish_cleaning(log)
            self._directory.set_cleaned_offset(of, stats.end_offset)
        return stats

    def _settings(self, topic: str) -> LogConfig | None:
        """What is known of a topic."""
        said = self._state.configs.get((ResourceType.TOPIC, topic), {})
        if topic not in self._state.topics:
            if topic not in COMPACTED:
                return None
            said = COMPACTED[topic]
        values = topic_values(self._config, said)
        return log_config(values, self._config["producer.id.expiration.ms"])


def _catalogue(path: str) -> CatalogueState:
    """What the cluster's own log says, as far as it can be read."""
    from konvene.records.cluster_log import decode_cluster_record

    catalogue, disk = Catalogue(), ReadOnlyDisk()
    folder = f"{path}/{CLUSTER_METADATA_TOPIC}-0"
    for each in find(disk, folder) if disk.exists(folder) else ():
        for name in each.logs:
            file = disk.open(f"{each.path}/{name}")
            try:
                for part in walk(file, file.size(), base_offset_of(name)):
                    if not isinstance(part, Batch) or part.header.is_control:
                        continue
                    for record in records(part.view, part.header):
                        try:
                            catalogue.replay(decode_cluster_record(record.key, record.value))
                        except CodecError:
                            continue  # A record that only Kafka knows.
            finally:
                file.close()
    return catalogue.state
