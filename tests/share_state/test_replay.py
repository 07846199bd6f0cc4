"""What is read from logs that ours does not write: records as Kafka's loader takes them, and strange ones."""

from __future__ import annotations

from tests.share_state.asking import KEY, ORDERS

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


def batches(*told: tuple[int, int, int, int]) -> tuple[Written, ...]:
    return tuple(
        Written(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in told
    )


def test_an_update_says_minus_one_where_nothing_has_moved() -> None:
    shard = ShareStateShard()
    first = ShareSnapshotValue(state_epoch=2, leader_epoch=3, start_offset=7, delivery_complete_count=1)
    shard.replay(Record(SNAPSHOT_OF, first))
    told = batches((5, 8, 2, 1))
    shard.replay(Record(UPDATE_OF, ShareUpdateValue(start_offset=-1, leader_epoch=-1, state_batches=told)))
    state = shard.states[KEY]
    assert (state.start_offset, state.leader_epoch, state.highest_leader_epoch) == (7, 3, 3)
    assert state.delivery_complete_count == -1, "that is told with each"
    assert state.batches == (StateBatch(7, 8, 2, 1),)


def test_an_update_without_a_snapshot_is_what_is_known() -> None:
    """A log whose beginning was cut off by hand: nobody's state epoch is over."""
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


def test_a_snapshot_whose_batches_are_no_row_is_read_as_one() -> None:
    """So that what is merged into it later is merged right."""
    shard = ShareStateShard()
    told = batches((10, 19, 0, 1), (0, 4, 2, 1), (12, 13, 2, 2), (5, 5, 2, 1))
    shard.replay(PositionedRecord(0, Record(SNAPSHOT_OF, ShareSnapshotValue(state_batches=told))))
    assert shard.states[KEY].batches == (
        StateBatch(0, 5, 2, 1), StateBatch(10, 11, 0, 1), StateBatch(12, 13, 2, 2), StateBatch(14, 19, 0, 1),
    )  # fmt: skip


def test_what_says_nothing_is_passed_over() -> None:
    shard = ShareStateShard()
    shard.replay(Record(UPDATE_OF, None))
    shard.replay(Record(TransactionLogKey(transactional_id="x"), None))
    shard.replay(Record(SNAPSHOT_OF, None))
    assert (shard.ignored_records, shard.states) == (2, {})


def test_where_nobody_knows_the_start_all_offsets_count() -> None:
    """-1 is no offset to be compared with, not even with stranger ones."""
    before = (StateBatch(-9, -5, 0, 1),)
    news = (StateBatch(-3, -2, 2, 1),)
    assert combine(before, news, -1) == before + news
    assert combine((), before + news, -1) == before + news
    assert combine(before, news, -6) == (StateBatch(-6, -5, 0, 1), *news)


def test_groups_topics_and_partitions_are_kept_apart() -> None:
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
