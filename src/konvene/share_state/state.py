"""What is known of one share partition, and the records that say it.

A snapshot says everything; an update says what has changed since, and is merged into it. The highest epochs
that were ever seen are kept beside what the last record said: a snapshot that begins anew says leader epoch
0, and still nobody older may write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from konvene.records.coordinator import Record
from konvene.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from konvene.share_state.combine import UNKNOWN_OFFSET, Batches, combine, in_a_row
from konvene.share_state.requests import SharePartitionKey, StateBatch

UNKNOWN_COUNT = -1


class At(NamedTuple):
    """A snapshot, or a tombstone, and where it stands in the log: what is before the oldest one can go."""

    offset: int
    record: Record


class SharePartitionState(NamedTuple):
    """How far a share group is in a partition, and what became of the records from there on."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches
    create_timestamp: int = 0
    """When somebody had it written."""
    write_timestamp: int = 0
    """When the last snapshot was written; later than its creation where nobody asked for it."""
    highest_state_epoch: int = 0
    highest_leader_epoch: int = 0
    updates: int = 0
    """How many since the last snapshot that was due."""


def snapshot(key: SharePartitionKey, state: SharePartitionState, offset: int) -> At:
    """All that is known, as a record at that offset."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp,
        write_timestamp=state.write_timestamp,
        state_batches=state.batches,  # type: ignore[arg-type]  # they read alike
    )
    return At(offset, Record(_snapshot_key(key), value))


def update(key: SharePartitionKey, state: SharePartitionState) -> Record:
    """What has changed, as a record."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=state.batches,  # type: ignore[arg-type]  # they read alike
    )
    return Record(
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def tombstone(key: SharePartitionKey, offset: int) -> At:
    """That nothing is known any more, as a record at that offset."""
    return At(offset, Record(_snapshot_key(key), None))


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def after_snapshot(
    known: SharePartitionState | None, value: ShareSnapshotValue, updates_per_snapshot: int
) -> SharePartitionState:
    """What is known after a snapshot was read.

    The updates are counted anew only where this snapshot was due for their number."""
    updates = known.updates if known is not None else 0
    return SharePartitionState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        in_a_row(_batches(value)),
        value.create_timestamp,
        value.write_timestamp,
        max(value.state_epoch, known.highest_state_epoch if known is not None else 0),
        max(value.leader_epoch, known.highest_leader_epoch if known is not None else 0),
        updates if updates < updates_per_snapshot else 0,
    )


def after_update(known: SharePartitionState | None, value: ShareUpdateValue) -> SharePartitionState:
    """What is known after an update was read."""
    news = _batches(value)
    if known is None:
        return SharePartitionState(
            value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, value.delivery_complete_count,
            in_a_row(news), highest_leader_epoch=max(value.leader_epoch, 0), updates=1,
        )  # fmt: skip
    start_offset = known.start_offset if value.start_offset == UNKNOWN_OFFSET else value.start_offset
    leader_epoch = known.leader_epoch if value.leader_epoch == -1 else value.leader_epoch
    return SharePartitionState(
        known.snapshot_epoch,
        known.state_epoch,
        leader_epoch,
        start_offset,
        value.delivery_complete_count,
        combine(known.batches, news, start_offset),
        known.create_timestamp,
        known.write_timestamp,
        known.highest_state_epoch,
        max(known.highest_leader_epoch, leader_epoch),
        known.updates + 1,
    )


def _batches(value: ShareSnapshotValue | ShareUpdateValue) -> Batches:
    told: tuple[Any, ...] = value.state_batches
    return tuple(
        batch
        if type(batch) is StateBatch
        else StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in told
    )
