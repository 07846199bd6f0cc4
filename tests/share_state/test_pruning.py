"""How the log stays short: what is superfluous, what is written anew, what goes with its topic."""

from __future__ import annotations

import pytest
from tests.share_state.asking import BILLS, KEY, ORDERS, OTHER, Asked

from konvene.records.coordinator import Record
from konvene.records.share_state import ShareSnapshotKey, ShareSnapshotValue
from konvene.share_state.pruning import DELETE_RECORDS, ORPHANS, PRUNE, SNAPSHOT_COLD, SnapshotOffsets
from konvene.share_state.requests import Delete, SharePartitionKey, StateBatch, TopicsDeleted
from konvene.share_state.state import PositionedRecord

INTERVAL_MS = 300_000

SNAPSHOT, TOMBSTONE = ShareSnapshotValue(), None

CASES = {
    "the first record": [("a", 0, 0), ("a", 10, 10)],
    "one of one kind": [("a", 10, 10), ("a", 11, 11), ("a", 15, 15)],
    "several": [("a", 10, 10), ("d", 11, 10), ("b", 13, 10)],
    "each is deleted": [("-a", 10, 10), ("-d", 11, 11), ("-b", 13, 13)],
    "one is deleted": [("a", 0, 0), ("a", 10, 10), ("b", 15, 10), ("-a", 25, 15)],
    "a hole is not cut": [("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 16, 10), ("a", 17, 15)],
    "a hole, and it goes": [("a", 10, 10), ("b", 11, 10), ("-c", 15, 10), ("b", 16, 10), ("a", 17, 16)],
    "backwards": [("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("c", 18, 10), ("b", 20, 10), ("a", 25, 18)],
    "backwards, and two go": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("-c", 18, 10), ("-b", 20, 10), ("a", 25, 25),
    ],
    "one holds all": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 18, 10), ("c", 20, 10), ("b", 27, 10),
        ("c", 28, 10), ("a", 30, 27),
    ],
    "one holds what is deleted": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 18, 10), ("-c", 20, 10), ("b", 22, 10),
        ("-b", 27, 10), ("a", 30, 30),
    ],
    "a tombstone is behind what it ends": [("a", 10, 10), ("b", 11, 10), ("-a", 12, 11), ("-b", 20, 20)],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_superfluous(case: list[tuple[str, int, int]]) -> None:
    """Kafka's own cases of its offsets manager, and the last one besides."""
    snapshots = SnapshotOffsets()
    for name, offset, superfluous_before in case:
        key = SharePartitionKey(name.removeprefix("-"), ORDERS, 0)
        value = TOMBSTONE if name.startswith("-") else SNAPSHOT
        snapshots.note(key, PositionedRecord(offset, Record(ShareSnapshotKey(), value)))
        assert snapshots.superseded_before() == superfluous_before


def busy() -> Asked:
    """Two share partitions: something happens in one of them all the time."""
    asked = Asked(updates_per_snapshot=2)
    asked.initialize(OTHER)
    asked.initialize(KEY)
    for offset in range(8):
        asked.now_ms += 10
        asked.write((offset, offset, 2, 1), count=offset + 1)
    return asked


def test_the_log_is_cut_before_the_oldest_snapshot() -> None:
    asked = busy()
    assert asked.ring(PRUNE) == [], "where nothing happens the first record counts"
    assert asked.timers[PRUNE] == INTERVAL_MS
    asked.now_ms += INTERVAL_MS
    asked.ring(SNAPSHOT_COLD)
    (effect,) = asked.ring(PRUNE)
    assert effect.verb == DELETE_RECORDS
    before = asked.again().states
    asked.cut(effect.subject)
    assert len(asked.log) == 2
    assert asked.again().states == before == asked.shard.states


def test_cold_ones_are_written_as_they_are() -> None:
    asked = Asked()
    asked.initialize(OTHER, state_epoch=4)
    asked.write((0, 9, 0, 2), key=OTHER, state_epoch=4, start=0, count=1)
    asked.now_ms += INTERVAL_MS - 1
    asked.initialize(KEY)
    before = len(asked.log)
    assert asked.ring(SNAPSHOT_COLD) == []
    assert len(asked.log) == before, "none is that old"
    asked.now_ms += 1
    asked.ring(SNAPSHOT_COLD)
    assert len(asked.log) == before + 1
    assert asked.last.key == ShareSnapshotKey(group_id="g", topic_id=BILLS, partition=0)
    value = asked.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.snapshot_epoch, value.state_epoch, value.start_offset) == (1, 4, 0)
    assert (value.create_timestamp, value.write_timestamp) == (1_000, asked.now_ms)
    assert asked.state(OTHER).batches == (StateBatch(0, 9, 0, 2),)
    assert asked.timers[SNAPSHOT_COLD] == INTERVAL_MS


def test_a_quiet_log_is_not_written_for_ever() -> None:
    """What was written anew is only written again when something else goes on."""
    asked = busy()
    for _ in range(5):
        asked.now_ms += INTERVAL_MS
        asked.ring(SNAPSHOT_COLD)
    written = len(asked.log)
    asked.now_ms += INTERVAL_MS
    asked.ring(SNAPSHOT_COLD)
    assert len(asked.log) == written
    asked.now_ms += 1
    asked.initialize(state_epoch=2)
    asked.ring(SNAPSHOT_COLD)
    assert len(asked.log) == written + 2, "the other one holds the log up again"


def test_updates_are_counted_on_over_a_cold_snapshot() -> None:
    asked = Asked(updates_per_snapshot=3)
    asked.initialize()
    asked.write((0, 0, 2, 1))
    asked.now_ms += INTERVAL_MS
    asked.ring(SNAPSHOT_COLD)
    asked.write((1, 1, 2, 1))
    asked.write((2, 2, 2, 1))
    assert asked.state().snapshot_epoch == 1
    asked.write((3, 3, 2, 1))
    assert asked.state().snapshot_epoch == 2
    assert asked.again().states == asked.shard.states


def test_what_is_too_much_for_one_batch_is_done_in_portions() -> None:
    asked = Asked()
    keys = [SharePartitionKey("group" * 1_000 + str(index), ORDERS, 0) for index in range(60)]
    for key in keys:
        asked.initialize(key)
    asked.now_ms += INTERVAL_MS
    portions = []
    while True:
        before = len(asked.log)
        asked.ring(SNAPSHOT_COLD)
        portions.append(len(asked.log) - before)
        if asked.timers[SNAPSHOT_COLD]:
            break
    assert sum(portions) == 60
    assert max(portions) * 15_000 < 400_000
    assert all(state.snapshot_epoch == 1 for state in asked.shard.states.values())
    asked.topics = type(asked.topics)()
    asked.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert 0 < len(asked.shard.states) < 60
    while asked.shard.states:
        assert asked.timers.pop(ORPHANS) == 0
        asked.ring(ORPHANS)
    assert ORPHANS not in asked.timers
    assert asked.again().states == {}


def test_what_a_topic_had_goes_with_it() -> None:
    """Bug 88: and nothing of another topic does."""
    asked = busy()
    asked.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert list(asked.shard.states) == [OTHER]
    assert list(asked.again().states) == [OTHER]
    before = len(asked.log)
    asked.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert len(asked.log) == before


def test_what_was_left_behind_goes_when_the_log_is_loaded() -> None:
    asked = busy()
    context = asked.context()._replace(topics=asked.topics)
    assert {timer.key for timer in asked.again().load(context).timers} == {SNAPSHOT_COLD, PRUNE}
    asked.topics = type(asked.topics)([topic for topic in asked.topics.by_id.values() if topic.id != ORDERS])
    asked.shard = asked.again()
    assert {timer.key for timer in asked.shard.load(asked.context()).timers} == {
        SNAPSHOT_COLD,
        PRUNE,
        ORPHANS,
    }
    asked.ring(ORPHANS)
    assert list(asked.shard.states) == [OTHER]


def test_a_deleted_one_holds_nothing_up() -> None:
    asked = busy()
    asked.ask(Delete(OTHER))
    (effect,) = asked.ring(PRUNE)
    states = dict(asked.shard.states)
    asked.cut(effect.subject)
    assert asked.again().states == states


def test_gaps_are_gaps_again_when_the_log_is_loaded() -> None:
    """Bug 77 (KAFKA-18494), as far as the state goes: offsets that nobody told of stay untold, over updates,
    a snapshot, the cut behind it and a start offset that moves into a gap."""
    asked = Asked(updates_per_snapshot=3)
    asked.initialize(start_offset=10)
    asked.write((12, 13, 2, 1), start=10)
    asked.write((20, 24, 0, 2), start=10)
    told = (StateBatch(12, 13, 2, 1), StateBatch(20, 24, 0, 2))
    assert asked.again().states[KEY].batches == asked.read().batches == told
    asked.write((27, 27, 4, 5), start=16)
    asked.write((30, 31, 2, 1), start=16)
    (effect,) = asked.ring(PRUNE)
    asked.cut(effect.subject)
    assert len(asked.log) == 1
    told = (StateBatch(20, 24, 0, 2), StateBatch(27, 27, 4, 5), StateBatch(30, 31, 2, 1))
    assert asked.again().states[KEY].batches == asked.read().batches == told
    assert asked.read().start_offset == 16
