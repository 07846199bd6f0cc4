"""Pending offsets: commits of open transactions, kept apart until the transaction commits or aborts.

Of several commits of a partition, the one whose record is last in the log wins, whenever its transaction
ends: compaction keeps the last record of a key, so no other one would survive it. A later commit therefore
supersedes all pending ones. They stay pending, and a fetch of stable offsets has to wait for their
transactions, but they have no effect any more.

A tombstone deletes pending offsets, too. None of this costs anything while no transaction is open.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.groups.offsets.committed import Committed, OffsetCommitted, OffsetsCommitted

PendingCommits = dict[int, Committed | None]
"""A partition's pending commits by producer id, in the order of the log; None if superseded."""

PendingOffsets = Mapping[str, Mapping[int, PendingCommits]]
"""A group's pending commits by topic and partition, without empty entries."""


class Pending:
    """The pending offsets of all open transactions in one partition of the log."""

    __slots__ = ("by_group", "by_producer")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, PendingCommits]]] = {}
        self.by_producer: dict[int, dict[tuple[str, str, int], None]] = {}

    def __repr__(self) -> str:
        return f"<pending: {len(self.by_producer)} transactions, {len(self.by_group)} groups>"

    def of(self, group_id: str) -> PendingOffsets:
        """Return a group's pending commits; empty if it has none."""
        return self.by_group.get(group_id, _NONE)

    def add(self, producer_id: int, record: OffsetCommitted | OffsetsCommitted) -> None:
        """Add a commit of an open transaction, which must not be a tombstone."""
        if isinstance(record, OffsetsCommitted):
            for partition, committed in record.committed.items():
                self._add(producer_id, record.group, record.topic, partition, committed)
        elif record.committed is not None:
            self._add(producer_id, record.group, record.topic, record.partition, record.committed)

    def _add(self, producer_id: int, group: str, topic: str, partition: int, committed: Committed) -> None:
        commits = self.by_group.setdefault(group, {}).setdefault(topic, {}).setdefault(partition, {})
        commits.pop(producer_id, None)
        commits[producer_id] = committed
        self.by_producer.setdefault(producer_id, {})[group, topic, partition] = None

    def supersede(self, record: OffsetCommitted | OffsetsCommitted) -> None:
        """Mark pending commits of the same partitions as superseded by this later record.

        A tombstone deletes them instead."""
        by_topic = self.by_group.get(record.group)
        by_partition = by_topic.get(record.topic) if by_topic is not None else None
        if by_partition is None:
            return
        if isinstance(record, OffsetsCommitted):
            for partition in record.committed:
                _supersede(by_partition.get(partition, {}))
        elif record.committed is not None:
            _supersede(by_partition.get(record.partition, {}))
        else:
            for producer_id in by_partition.get(record.partition, ()):
                keys = self.by_producer[producer_id]
                del keys[record[:3]]
                if not keys:
                    del self.by_producer[producer_id]
            self._drop(*record[:3])

    def end(self, producer_id: int, committed: bool) -> list[OffsetCommitted]:
        """End the producer's transaction, and return those of its commits that take effect.

        `committed`: it was committed, not aborted."""
        effective: list[OffsetCommitted] = []
        for group, topic, partition in self.by_producer.pop(producer_id, ()):
            commits = self.by_group[group][topic][partition]
            offset = commits[producer_id]
            if committed and offset is not None:
                _supersede(commits, up_to=producer_id)
                effective.append(OffsetCommitted(group, topic, partition, offset))
            del commits[producer_id]
            if not commits:
                self._drop(group, topic, partition)
        return effective

    def _drop(self, group: str, topic: str, partition: int) -> None:
        by_topic = self.by_group[group]
        by_topic[topic].pop(partition, None)
        if not by_topic[topic]:
            del by_topic[topic]
            if not by_topic:
                del self.by_group[group]


_NONE: PendingOffsets = {}

NOTHING_PENDING = Pending()
"""An empty `Pending` for callers that ignore pending commits; it must not be changed."""


def _supersede(commits: PendingCommits, up_to: int | None = None) -> None:
    """Mark pending commits of a partition as superseded: they have no effect any more.

    `commits`: by producer id, in the order of the log; `up_to`: the producer at whose commit to stop, so that
    it and later ones keep their effect; None supersedes all."""
    for producer_id in commits:
        if producer_id == up_to:
            return
        commits[producer_id] = None
