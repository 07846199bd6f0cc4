"""The committed offsets of groups, and how records change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from konvene.records.commits import Committed, OffsetCommitted, OffsetsCommitted

NO_OFFSET = -1

NOT_COMMITTED = Committed(NO_OFFSET)

Offsets = dict[str, dict[int, Committed]]
"""A group's offsets by topic and partition. A topic without offsets has no entry."""


def tombstones(group_id: str, *offsets: Mapping[str, Iterable[int]]) -> tuple[OffsetCommitted, ...]:
    """Return the tombstones of all offsets of a group, one for each partition.

    `offsets`: mappings from topic to partitions; a partition may be in several."""
    deleted = dict.fromkeys(
        (topic, partition)
        for by_topic in offsets
        for topic, partitions in by_topic.items()
        for partition in partitions
    )
    return tuple(OffsetCommitted(group_id, topic, partition, None) for topic, partition in deleted)


def replay(groups: dict[str, Offsets], record: OffsetCommitted) -> None:
    """Apply the record of one partition's offset, or its tombstone, to the offsets of all groups."""
    group, topic, partition, committed = record
    if committed is not None:
        groups.setdefault(group, {}).setdefault(topic, {})[partition] = committed
        return
    offsets = groups.get(group)
    partitions = offsets.get(topic) if offsets is not None else None
    if offsets is None or partitions is None or partitions.pop(partition, None) is None:
        return
    if not partitions:
        del offsets[topic]
        if not offsets:
            del groups[group]


def replay_many(groups: dict[str, Offsets], record: OffsetsCommitted) -> None:
    """Apply the record of several partitions' offsets, of one group and topic."""
    group, topic, committed = record
    groups.setdefault(group, {}).setdefault(topic, {}).update(committed)


__all__ = [
    "NOT_COMMITTED", "Committed", "OffsetCommitted", "Offsets", "OffsetsCommitted", "replay", "replay_many",
    "tombstones",
]  # fmt: skip
