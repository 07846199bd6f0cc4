"""Lag of groups, computed for each scrape: in records, and in seconds, by topic and in total.

Lag in records is that of `konvene groups describe`: the end offset of a partition less the committed offset,
or, for a share group, the records from the start offset of its share partition whose delivery is not
complete. Lag in seconds is the age of the oldest unread record. Its timestamp is that of the first record in
the batch that contains the committed offset, which may be older than the record itself by as much as the
batch took to fill.

What a scrape may cost is bounded:

- Only groups with a label of their own have a lag, and only `konvene.metrics.topics` pairs of group and topic
  have lines of their own; the other topics of a group share the label `OTHER`.
- Lag in records takes no I/O. For the timestamp of an unread record the header of its batch is read, as by a
  fetch (one read of 8 KiB, which the page cache usually has), and in a segment that nothing has read before
  its index. This is done for the `PARTITIONS_PER_TOPIC` partitions of a topic with the largest lag, again
  only when the committed offset changes, and at most `MAX_READS` times in a scrape.
- The event loop is released every `SLICE_S`.

Limitation: of a topic with more lagging partitions, the oldest unread record may be in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from konvene.broker.metrics.instruments import OTHER, PartitionKey, TopicLabels
from konvene.codec.errors import CodecError
from konvene.groups.group_type import TYPES
from konvene.groups.shard import GroupShard
from konvene.log.errors import LogError
from konvene.share_state.combine import UNKNOWN_OFFSET
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import UNKNOWN_COUNT

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.metrics.instruments import GroupLabels
    from konvene.broker.metrics.meter import Meter
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.environment import Environment

SLICE_S: Final = 0.002
PARTITIONS_PER_TOPIC: Final = 8
MAX_READS: Final = 1_000

CLASSIC: Final = "classic"
"""Type of a group that has committed offsets and no members or generation."""


class LagSources(Protocol):
    """The services of a broker from which lags are computed."""

    @property
    def groups(self) -> GroupCoordinators: ...
    @property
    def share_coordinators(self) -> ShareCoordinators: ...
    @property
    def catalogue(self) -> ClusterCatalogue: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def environment(self) -> Environment: ...


class Position(NamedTuple):
    """Where a group reads next in a partition."""

    offset: int
    complete: int = 0
    """Number of records behind `offset` whose delivery is complete, in share groups."""


class Lag(NamedTuple):
    """Unread records, and the timestamp of the oldest one in ms; None if it is not known."""

    records: int
    oldest_ms: int | None = None

    def plus(self, other: Lag) -> Lag:
        known = [each.oldest_ms for each in (self, other) if each.oldest_ms is not None]
        return Lag(self.records + other.records, min(known, default=None))

    def seconds(self, now_ms: int) -> float | None:
        """Return the age of the oldest unread record, 0 without one; None if it is not known."""
        if not self.records:
            return 0.0
        return None if self.oldest_ms is None else max(now_ms - self.oldest_ms, 0) / 1000


class Lags(NamedTuple):
    """The lags of one scrape."""

    groups: dict[tuple[str, str], Lag]
    """By group and type."""
    topics: dict[tuple[str, str, str], Lag]
    """By group, type, and topic or `OTHER`."""
    now_ms: int


async def measure_lags(broker: LagSources, meter: Meter) -> Lags:
    """Return the lags of all groups that have a label of their own.

    The meter remembers the labels of topics and the timestamps that previous scrapes read."""
    scrape = _Scrape(broker, meter.topic_labels, meter.unread_timestamps)
    began_s = perf_counter()
    for group_id, kind, topics in _positions(broker, meter.labels):
        for topic, positions in topics.items():
            scrape.add(group_id, kind, topic, positions)
            if perf_counter() - began_s > SLICE_S:
                await asyncio.sleep(0)
                began_s = perf_counter()
    meter.topic_labels.retain(scrape.seen)
    meter.unread_timestamps = scrape.timestamps
    return scrape.lags


def _positions(
    broker: LagSources, labels: GroupLabels
) -> Iterator[tuple[str, str, Mapping[str, Mapping[int, Position]]]]:
    """Yield each labelled group with its type and its positions, copied, by topic and partition."""
    for group_id in list(labels):
        coordinator = broker.groups.of(group_id)
        shard = coordinator.core if coordinator is not None else None
        offsets = shard.offsets.get(group_id) if isinstance(shard, GroupShard) else None
        if offsets is not None:
            assert isinstance(shard, GroupShard)
            group = shard.groups.get(group_id)
            kind = TYPES[type(group)].name if group is not None else CLASSIC
            yield (
                group_id,
                kind,
                {
                    topic: {index: Position(committed.offset) for index, committed in partitions.items()}
                    for topic, partitions in offsets.items()
                },
            )
    for group_id, topics in _share_positions(broker, labels).items():
        yield group_id, "share", topics


def _share_positions(broker: LagSources, labels: GroupLabels) -> dict[str, dict[str, dict[int, Position]]]:
    found: dict[str, dict[str, dict[int, Position]]] = {}
    names = broker.catalogue.topics.by_id
    for coordinator in broker.share_coordinators.all():
        shard = coordinator.core
        for key, state in shard.states.items() if isinstance(shard, ShareStateShard) else ():
            topic = names.get(key.topic_id)
            if topic is None or key.group_id not in labels:
                continue
            position = Position(state.start_offset, state.delivery_complete_count)
            if position.offset != UNKNOWN_OFFSET and position.complete != UNKNOWN_COUNT:
                by_topic = found.setdefault(key.group_id, {})
                by_topic.setdefault(topic.name, {})[key.partition] = position
    return found


class _Scrape:
    """The lags of one scrape while they are computed."""

    def __init__(
        self,
        broker: LagSources,
        labels: TopicLabels,
        read_before: Mapping[PartitionKey, tuple[int, int | None]],
    ) -> None:
        self._partitions = broker.partitions
        self._labels = labels
        self._read_before = read_before
        self._reads = 0
        self.timestamps: dict[PartitionKey, tuple[int, int | None]] = {}
        self.seen: set[tuple[str, str]] = set()
        self.lags = Lags({}, {}, broker.environment.wall_clock_ms())

    def __repr__(self) -> str:
        return f"<lags of {len(self.lags.groups)} groups, {self._reads} reads>"

    def add(self, group_id: str, kind: str, topic: str, positions: Mapping[int, Position]) -> None:
        """Add the lag of a group in the partitions of a topic; partitions without a log do not count."""
        lags: list[tuple[int, int, int]] = []
        """Records, partition, first unread offset."""
        for index, (offset, complete) in positions.items():
            partition = self._partitions.get(topic, index)
            if partition is not None:
                lags.append((max(partition.high_watermark - offset - complete, 0), index, offset))
        if not lags:
            return
        lags.sort(reverse=True)
        lag = Lag(sum(records for records, _, _ in lags))
        for records, index, offset in lags[:PARTITIONS_PER_TOPIC]:
            if records:
                lag = lag.plus(Lag(0, self._timestamp((group_id, topic, index), offset)))
        groups, topics = self.lags.groups, self.lags.topics
        label = self._labels.of(group_id, topic)
        if label != OTHER:
            self.seen.add((group_id, topic))
        groups[group_id, kind] = groups.get((group_id, kind), Lag(0)).plus(lag)
        topics[group_id, kind, label] = topics.get((group_id, kind, label), Lag(0)).plus(lag)

    def _timestamp(self, key: PartitionKey, offset: int) -> int | None:
        """Return the timestamp at an offset; None if it is not known or too many have been read."""
        read = self._read_before.get(key)
        if read is None or read[0] != offset:
            partition = self._partitions.get(key[1], key[2])
            if self._reads >= MAX_READS or partition is None:
                return None
            self._reads += 1
            try:
                read = offset, partition.log.timestamp_at(offset)
            except (LogError, CodecError):
                return None
        self.timestamps[key] = read
        return read[1]
