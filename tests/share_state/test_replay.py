"""Replay of records that konvene does not write itself: Kafka's, incomplete and foreign ones."""

from __future__ import annotations

from tests.share_state.harness import KEY, ORDERS

from konvene.records.coordinator import Record
from konvene.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from konvene.records.share_state import StateBatch as Written
from konvene.records.transactions import TransactionLogKey
from konvene.share_state.combine import combine
from konvene.share_state.requests import SharePartitionKey, StateBatch
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import PositionedRecord

SNAPSHOT_OF = ShareSnapshotKey(group_id="g", topic_id=ORDERS, partition=0)
UPDATE_OF = ShareUpdateKey(group_id="g", topic_id=ORDERS, partition=0)


def batches(*written: tuple[int, int, int, int]) -> tuple[Written, ...]:
    return tuple(
        Written(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in written
    )


def test_minus_one_in_an_update_leaves_the_field_unchanged() -> None:
    shard = ShareStateShard()
    first = ShareSnapshotValue(state_epoch=2, leader_epoch=3, start_offset=7, delivery_complete_count=1)
    shard.replay(Record(SNAPSHOT_OF, first))
    written = batches((5, 8, 2, 1))
    shard.replay(Record(UPDATE_OF, ShareUpdateValue(start_offset=-1, leader_epoch=-1, state_batches=written)))
    state = shard.states[KEY]
    assert (state.start_offset, state.leader_epoch, state.highest_leader_epoch) == (7, 3, 3)
    assert state.delivery_complete_count == -1, "every update carries the count"
    assert state.batches == (StateBatch(7, 8, 2, 1),)


def test_update_without_a_snapshot_creates_the_state() -> None:
    """The beginning of the log was deleted by hand: the state epoch starts at 0 and fences no request."""
    shard = ShareStateShard()
    value = ShareUpdateValue(
        snapshot_epoch=4, leader_epoch=3, start_offset=7, delivery_complete_count=2,
        state_batches=batches((9, 9, 2, 1), (7, 8, 2, 1)),
    )  # fmt: skip
    shard.replay(Record(UPDATE_OF, value))
    state = shard.states[KEY]
    assert (state.snapshot_epoch, state.state_epoch, state.highest_state_epoch) == (4, 0, 0)
    assert (state.leader_epoch, state.highest_leader_epoch, state.start_offset) == (3, 3, 7)
    assert (state.delivery_complete_count, state.updates) == (2, 1)
    assert state.batches == (StateBatch(7, 9, 2, 1),)


def test_unsorted_batches_of_a_snapshot_are_normalized() -> None:
    """Merging later batches needs a sorted list without overlaps."""
    shard = ShareStateShard()
    written = batches((10, 19, 0, 1), (0, 4, 2, 1), (12, 13, 2, 2), (5, 5, 2, 1))
    shard.replay(PositionedRecord(0, Record(SNAPSHOT_OF, ShareSnapshotValue(state_batches=written))))
    assert shard.states[KEY].batches == (
        StateBatch(0, 5, 2, 1), StateBatch(10, 11, 0, 1), StateBatch(12, 13, 2, 2), StateBatch(14, 19, 0, 1),
    )  # fmt: skip


def test_tombstones_of_unknown_keys_and_foreign_records_are_ignored() -> None:
    shard = ShareStateShard()
    shard.replay(Record(UPDATE_OF, None))
    shard.replay(Record(TransactionLogKey(transactional_id="x"), None))
    shard.replay(Record(SNAPSHOT_OF, None))
    assert (shard.ignored_records, shard.states) == (2, {})


def test_unknown_start_offset_drops_no_batches() -> None:
    """-1 is not compared with offsets, not even with negative ones."""
    before = (StateBatch(-9, -5, 0, 1),)
    update_batches = (StateBatch(-3, -2, 2, 1),)
    assert combine(before, update_batches, -1) == before + update_batches
    assert combine((), before + update_batches, -1) == before + update_batches
    assert combine(before, update_batches, -6) == (StateBatch(-6, -5, 0, 1), *update_batches)


def test_states_are_keyed_by_group_topic_and_partition() -> None:
    shard = ShareStateShard()
    keys = [
        SharePartitionKey("g", ORDERS, 0),
        SharePartitionKey("g", ORDERS, 1),
        SharePartitionKey("h", ORDERS, 0),
    ]
    for number, key in enumerate(keys):
        of = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
        shard.replay(PositionedRecord(number, Record(of, ShareSnapshotValue(start_offset=number))))
    assert {key: state.start_offset for key, state in shard.states.items()} == {
        key: number for number, key in enumerate(keys)
    }
    assert repr(shard) == "<share state shard: 3 share partitions>"
