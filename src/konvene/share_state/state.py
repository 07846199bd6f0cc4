"""The state of one share partition, and its records.

A snapshot record contains the whole state; an update record contains a change, which is merged. The highest
epochs ever seen are kept beside the current ones: re-initializing a share partition resets its leader epoch
to 0, and older leaders must remain fenced.
"""

from __future__ import annotations

from typing import NamedTuple, final

from konvene.records.coordinator import Record
from konvene.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from konvene.share_state.combine import UNKNOWN_OFFSET, Batches, combine, normalized
from konvene.share_state.requests import SharePartitionKey, StateBatch

UNKNOWN_COUNT = -1


@final
class PositionedRecord(NamedTuple):
    """A snapshot or tombstone with its offset in the log; see `pruning`."""

    offset: int
    record: Record


class SharePartitionState(NamedTuple):
    """The state of a share partition: epochs, start offset, and the delivery states of records behind it."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches
    create_timestamp: int = 0
    """When a request caused the snapshot, in ms since the epoch."""
    write_timestamp: int = 0
    """When the last snapshot was written; later than `create_timestamp` if pruning rewrote it."""
    highest_state_epoch: int = 0
    highest_leader_epoch: int = 0
    updates: int = 0
    """Number of updates since the last snapshot that was written because of their number."""


def snapshot(key: SharePartitionKey, state: SharePartitionState, offset: int) -> PositionedRecord:
    """Return the whole state as a snapshot record at `offset`."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp,
        write_timestamp=state.write_timestamp,
        state_batches=state.batches,  # type: ignore[arg-type]  # same fields
    )
    return PositionedRecord(offset, Record(_snapshot_key(key), value))


def update(key: SharePartitionKey, state: SharePartitionState) -> Record:
    """Return the update record of a change; `state.batches` has only the changed batches."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=state.batches,  # type: ignore[arg-type]  # same fields
    )
    return Record(
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def tombstone(key: SharePartitionKey, offset: int) -> PositionedRecord:
    """Return the tombstone of a deleted state at `offset`."""
    return PositionedRecord(offset, Record(_snapshot_key(key), None))


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def after_snapshot(
    known: SharePartitionState | None, value: ShareSnapshotValue, updates_per_snapshot: int
) -> SharePartitionState:
    """Return the state after replaying a snapshot; `known` is the state before, if any.

    The state counts the updates since a snapshot. If a snapshot comes before there are `updates_per_snapshot`
    of them, the count continues."""
    updates = known.updates if known is not None else 0
    return SharePartitionState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        normalized(_batches(value)),
        value.create_timestamp,
        value.write_timestamp,
        max(value.state_epoch, known.highest_state_epoch if known is not None else 0),
        max(value.leader_epoch, known.highest_leader_epoch if known is not None else 0),
        updates if updates < updates_per_snapshot else 0,
    )


def after_update(known: SharePartitionState | None, value: ShareUpdateValue) -> SharePartitionState:
    """Return the state after replaying an update; `known` is the state before, if any."""
    new = _batches(value)
    if known is None:
        return SharePartitionState(
            value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, value.delivery_complete_count,
            normalized(new), highest_leader_epoch=max(value.leader_epoch, 0), updates=1,
        )  # fmt: skip
    start_offset = known.start_offset if value.start_offset == UNKNOWN_OFFSET else value.start_offset
    leader_epoch = known.leader_epoch if value.leader_epoch == -1 else value.leader_epoch
    return SharePartitionState(
        known.snapshot_epoch,
        known.state_epoch,
        leader_epoch,
        start_offset,
        value.delivery_complete_count,
        combine(known.batches, new, start_offset),
        known.create_timestamp,
        known.write_timestamp,
        known.highest_state_epoch,
        max(known.highest_leader_epoch, leader_epoch),
        known.updates + 1,
    )


def _batches(value: ShareSnapshotValue | ShareUpdateValue) -> Batches:
    return tuple(
        batch
        if isinstance(batch, StateBatch)
        else StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in value.state_batches
    )
