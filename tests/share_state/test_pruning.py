"""Pruning of the share state log: superseded offsets, cold snapshots and deleted topics."""

from __future__ import annotations

import pytest
from tests.share_state.harness import BILLS, KEY, ORDERS, OTHER, ShareStateHarness

from konvene.records.coordinator import Record
from konvene.records.share_state import ShareSnapshotKey, ShareSnapshotValue
from konvene.share_state.pruning import DELETE_RECORDS, ORPHANS, PRUNE, SNAPSHOT_COLD, SnapshotOffsets
from konvene.share_state.requests import Delete, SharePartitionKey, StateBatch, TopicsDeleted
from konvene.share_state.state import PositionedRecord

INTERVAL_MS = 300_000

SNAPSHOT, TOMBSTONE = ShareSnapshotValue(), None

CASES = {
    "the first record": [("a", 0, 0), ("a", 10, 10)],
    "one key": [("a", 10, 10), ("a", 11, 11), ("a", 15, 15)],
    "several keys": [("a", 10, 10), ("d", 11, 10), ("b", 13, 10)],
    "each is deleted": [("-a", 10, 10), ("-d", 11, 11), ("-b", 13, 13)],
    "one is deleted": [("a", 0, 0), ("a", 10, 10), ("b", 15, 10), ("-a", 25, 15)],
    "a gap before a live snapshot": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 16, 10), ("a", 17, 15),
    ],
    "a gap closed by a tombstone": [
        ("a", 10, 10), ("b", 11, 10), ("-c", 15, 10), ("b", 16, 10), ("a", 17, 16),
    ],
    "backwards": [("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("c", 18, 10), ("b", 20, 10), ("a", 25, 18)],
    "backwards, two deleted": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("-c", 18, 10), ("-b", 20, 10), ("a", 25, 25),
    ],
    "one key blocks all": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 18, 10), ("c", 20, 10), ("b", 27, 10),
        ("c", 28, 10), ("a", 30, 27),
    ],
    "one key blocks tombstones": [
        ("a", 10, 10), ("b", 11, 10), ("c", 15, 10), ("b", 18, 10), ("-c", 20, 10), ("b", 22, 10),
        ("-b", 27, 10), ("a", 30, 30),
    ],
    "tombstone in the middle": [("a", 10, 10), ("b", 11, 10), ("-a", 12, 11), ("-b", 20, 20)],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_superseded_offset_is_that_of_the_oldest_last_snapshot(case: list[tuple[str, int, int]]) -> None:
    """The cases of Kafka's `ShareCoordinatorOffsetsManagerTest`, and a tombstone in the middle of the log."""
    snapshots = SnapshotOffsets()
    for name, offset, superseded_before in case:
        key = SharePartitionKey(name.removeprefix("-"), ORDERS, 0)
        value = TOMBSTONE if name.startswith("-") else SNAPSHOT
        snapshots.note(key, PositionedRecord(offset, Record(ShareSnapshotKey(), value)))
        assert snapshots.superseded_before() == superseded_before


def with_idle_partition() -> ShareStateHarness:
    """Return a harness with two share partitions, of which only one is written."""
    harness = ShareStateHarness(updates_per_snapshot=2)
    harness.initialize(OTHER)
    harness.initialize(KEY)
    for offset in range(8):
        harness.now_ms += 10
        harness.write((offset, offset, 2, 1), count=offset + 1)
    return harness


def test_log_is_deleted_below_the_oldest_snapshot() -> None:
    harness = with_idle_partition()
    assert harness.expire(PRUNE) == [], "the first record is the only snapshot of the idle partition"
    assert harness.timers[PRUNE] == INTERVAL_MS
    harness.now_ms += INTERVAL_MS
    harness.expire(SNAPSHOT_COLD)
    (effect,) = harness.expire(PRUNE)
    assert effect.verb == DELETE_RECORDS
    before = harness.restarted().states
    harness.delete_records(effect.subject)
    assert len(harness.log) == 2
    assert harness.restarted().states == before == harness.shard.states


def test_cold_state_is_snapshotted_unchanged() -> None:
    harness = ShareStateHarness()
    harness.initialize(OTHER, state_epoch=4)
    harness.write((0, 9, 0, 2), key=OTHER, state_epoch=4, start=0, count=1)
    harness.now_ms += INTERVAL_MS - 1
    harness.initialize(KEY)
    before = len(harness.log)
    assert harness.expire(SNAPSHOT_COLD) == []
    assert len(harness.log) == before, "no state is that old"
    harness.now_ms += 1
    harness.expire(SNAPSHOT_COLD)
    assert len(harness.log) == before + 1
    assert harness.last.key == ShareSnapshotKey(group_id="g", topic_id=BILLS, partition=0)
    value = harness.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.snapshot_epoch, value.state_epoch, value.start_offset) == (1, 4, 0)
    assert (value.create_timestamp, value.write_timestamp) == (1_000, harness.now_ms)
    assert harness.state(OTHER).batches == (StateBatch(0, 9, 0, 2),)
    assert harness.timers[SNAPSHOT_COLD] == INTERVAL_MS


def test_idle_log_gets_no_more_cold_snapshots() -> None:
    """A cold snapshot is repeated only after other records were written."""
    harness = with_idle_partition()
    for _ in range(5):
        harness.now_ms += INTERVAL_MS
        harness.expire(SNAPSHOT_COLD)
    written = len(harness.log)
    harness.now_ms += INTERVAL_MS
    harness.expire(SNAPSHOT_COLD)
    assert len(harness.log) == written
    harness.now_ms += 1
    harness.initialize(state_epoch=2)
    harness.expire(SNAPSHOT_COLD)
    assert len(harness.log) == written + 2, "the snapshot of the idle partition is again the oldest"


def test_cold_snapshot_does_not_reset_the_update_counter() -> None:
    harness = ShareStateHarness(updates_per_snapshot=3)
    harness.initialize()
    harness.write((0, 0, 2, 1))
    harness.now_ms += INTERVAL_MS
    harness.expire(SNAPSHOT_COLD)
    harness.write((1, 1, 2, 1))
    harness.write((2, 2, 2, 1))
    assert harness.state().snapshot_epoch == 1
    harness.write((3, 3, 2, 1))
    assert harness.state().snapshot_epoch == 2
    assert harness.restarted().states == harness.shard.states


def test_large_snapshots_and_deletions_are_split_into_batches() -> None:
    harness = ShareStateHarness()
    keys = [SharePartitionKey("group" * 1_000 + str(index), ORDERS, 0) for index in range(60)]
    for key in keys:
        harness.initialize(key)
    harness.now_ms += INTERVAL_MS
    batch_sizes = []
    while True:
        before = len(harness.log)
        harness.expire(SNAPSHOT_COLD)
        batch_sizes.append(len(harness.log) - before)
        if harness.timers[SNAPSHOT_COLD]:
            break
    assert sum(batch_sizes) == 60
    assert max(batch_sizes) * 15_000 < 400_000
    assert all(state.snapshot_epoch == 1 for state in harness.shard.states.values())
    harness.topics = type(harness.topics)()
    harness.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert 0 < len(harness.shard.states) < 60
    while harness.shard.states:
        assert harness.timers.pop(ORPHANS) == 0
        harness.expire(ORPHANS)
    assert ORPHANS not in harness.timers
    assert harness.restarted().states == {}


def test_states_of_a_deleted_topic_are_deleted() -> None:
    """Bug 88: and states of other topics are kept."""
    harness = with_idle_partition()
    harness.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert list(harness.shard.states) == [OTHER]
    assert list(harness.restarted().states) == [OTHER]
    before = len(harness.log)
    harness.inform(TopicsDeleted(frozenset((ORDERS,))))
    assert len(harness.log) == before


def test_states_of_missing_topics_are_deleted_after_loading() -> None:
    harness = with_idle_partition()
    context = harness.context()._replace(topics=harness.topics)
    assert {timer.key for timer in harness.restarted().load(context).timers} == {SNAPSHOT_COLD, PRUNE}
    harness.topics = type(harness.topics)(
        [topic for topic in harness.topics.by_id.values() if topic.id != ORDERS]
    )
    harness.shard = harness.restarted()
    assert {timer.key for timer in harness.shard.load(harness.context()).timers} == {
        SNAPSHOT_COLD,
        PRUNE,
        ORPHANS,
    }
    harness.expire(ORPHANS)
    assert list(harness.shard.states) == [OTHER]


def test_deleted_state_does_not_block_pruning() -> None:
    harness = with_idle_partition()
    harness.ask(Delete(OTHER))
    (effect,) = harness.expire(PRUNE)
    states = dict(harness.shard.states)
    harness.delete_records(effect.subject)
    assert harness.restarted().states == states


def test_gaps_survive_a_restart() -> None:
    """Bug 77 (KAFKA-18494), for the persisted state: offsets without a state stay without one after updates,
    a snapshot, pruning, and a start offset that moves into a gap."""
    harness = ShareStateHarness(updates_per_snapshot=3)
    harness.initialize(start_offset=10)
    harness.write((12, 13, 2, 1), start=10)
    harness.write((20, 24, 0, 2), start=10)
    expected = (StateBatch(12, 13, 2, 1), StateBatch(20, 24, 0, 2))
    assert harness.restarted().states[KEY].batches == harness.read().batches == expected
    harness.write((27, 27, 4, 5), start=16)
    harness.write((30, 31, 2, 1), start=16)
    (effect,) = harness.expire(PRUNE)
    harness.delete_records(effect.subject)
    assert len(harness.log) == 1
    expected = (StateBatch(20, 24, 0, 2), StateBatch(27, 27, 4, 5), StateBatch(30, 31, 2, 1))
    assert harness.restarted().states[KEY].batches == harness.read().batches == expected
    assert harness.read().start_offset == 16
