"""What is committed in transactions that are still open: kept apart until each one's end says what it was.

Of several commits for a partition the one counts whose record stands last in the log, whenever its
transaction ended: compaction keeps the last record of a key, so nothing else would survive it. So whoever
commits later overtakes all who have the partition pending. They have it pending still, and somebody who wants
to hear what is stable has to wait for them; but their commit no longer comes to anything.

A tombstone takes away what is pending, too. Nothing here costs anything while no transaction is open.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.groups.offsets.committed import Committed, OffsetCommitted, OffsetsCommitted

Open = dict[int, Committed | None]
"""Who has a partition pending, by producer id; who committed last stands last, and None was overtaken."""

PendingOffsets = Mapping[str, Mapping[int, Open]]
"""A group's, by topic and partition. Nothing in it is empty."""


class Pending:
    """The commits of open transactions in one partition of the log."""

    __slots__ = ("by_group", "by_producer")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, Open]]] = {}
        self.by_producer: dict[int, dict[tuple[str, str, int], None]] = {}

    def __repr__(self) -> str:
        return f"<pending: {len(self.by_producer)} transactions, {len(self.by_group)} groups>"

    def of(self, group_id: str) -> PendingOffsets:
        """What a group has pending."""
        return self.by_group.get(group_id, _NONE)

    def hold(self, producer_id: int, record: OffsetCommitted | OffsetsCommitted) -> None:
        """A commit in a transaction. Tombstones do not come here."""
        if isinstance(record, OffsetsCommitted):
            for partition, committed in record.committed.items():
                self._hold(producer_id, record.group, record.topic, partition, committed)
        elif record.committed is not None:
            self._hold(producer_id, record.group, record.topic, record.partition, record.committed)

    def _hold(self, producer_id: int, group: str, topic: str, partition: int, committed: Committed) -> None:
        held = self.by_group.setdefault(group, {}).setdefault(topic, {}).setdefault(partition, {})
        held.pop(producer_id, None)
        held[producer_id] = committed
        self.by_producer.setdefault(producer_id, {})[group, topic, partition] = None

    def overtake(self, record: OffsetCommitted | OffsetsCommitted) -> None:
        """A commit that counts at once, or a tombstone: what was pending for its partitions is older."""
        by_topic = self.by_group.get(record.group)
        by_partition = by_topic.get(record.topic) if by_topic is not None else None
        if by_partition is None:
            return
        if isinstance(record, OffsetsCommitted):
            for partition in record.committed:
                _overtaken(by_partition.get(partition, {}))
        elif record.committed is not None:
            _overtaken(by_partition.get(record.partition, {}))
        else:
            for producer_id in by_partition.get(record.partition, ()):
                keys = self.by_producer[producer_id]
                del keys[record[:3]]
                if not keys:
                    del self.by_producer[producer_id]
            self._drop(*record[:3])

    def end(self, producer_id: int, committed: bool) -> list[OffsetCommitted]:
        """The producer's transaction is over. What counts of it from here on."""
        counts: list[OffsetCommitted] = []
        for group, topic, partition in self.by_producer.pop(producer_id, ()):
            held = self.by_group[group][topic][partition]
            told = held[producer_id]
            if committed and told is not None:
                _overtaken(held, up_to=producer_id)
                counts.append(OffsetCommitted(group, topic, partition, told))
            del held[producer_id]
            if not held:
                self._drop(group, topic, partition)
        return counts

    def _drop(self, group: str, topic: str, partition: int) -> None:
        by_topic = self.by_group[group]
        by_topic[topic].pop(partition, None)
        if not by_topic[topic]:
            del by_topic[topic]
            if not by_topic:
                del self.by_group[group]


_NONE: PendingOffsets = {}

NOTHING_PENDING = Pending()
"""For who does not care; never changed."""


def _overtaken(held: Open, up_to: int | None = None) -> None:
    """Those who committed before this producer, or all, hold nothing that counts any more."""
    for producer_id in held:
        if producer_id == up_to:
            return
        held[producer_id] = None
