"""Requests to the share coordinator: rejections, records written, and the resulting state."""

from __future__ import annotations

import pytest
from tests.share_state.harness import BILLS, KEY, ORDERS, UNKNOWN, ShareStateHarness

from konvene.errors import Errors
from konvene.records.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    StateAnswer,
    StateBatch,
    SummaryAnswer,
    Write,
)

OLD_LEADER = (
    Errors.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
OLD_STATE = (
    Errors.FENCED_STATE_EPOCH,
    "The coordinator rejected the request because the state epoch did not match.",
)
NO_TOPIC = Errors.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
INVALID = Errors.INVALID_REQUEST


def initialized(**options: int) -> ShareStateHarness:
    harness = ShareStateHarness(**options)
    assert harness.initialize() == Answer()
    return harness


def test_initialize_writes_a_snapshot() -> None:
    harness = ShareStateHarness()
    assert harness.initialize(state_epoch=3, start_offset=-1) == Answer()
    assert harness.last.key == ShareSnapshotKey(group_id="g", topic_id=ORDERS, partition=0)
    assert harness.last.value == ShareSnapshotValue(
        state_epoch=3,
        start_offset=-1,
        delivery_complete_count=-1,
        create_timestamp=1_000,
        write_timestamp=1_000,
    )


def test_initialize_with_a_start_offset_sets_the_complete_count() -> None:
    harness = ShareStateHarness()
    harness.initialize(start_offset=7)
    assert harness.ask(ReadSummary(KEY, 0)) == SummaryAnswer(
        state_epoch=1, start_offset=7, delivery_complete_count=0
    )


def test_reinitialize_keeps_only_the_fenced_epochs() -> None:
    harness = initialized()
    harness.read(leader_epoch=6)
    harness.write((0, 9, 2, 1), leader_epoch=6, start=0, count=10)
    harness.now_ms = 2_000
    assert harness.initialize(state_epoch=2, start_offset=3) == Answer()
    assert harness.last.value == ShareSnapshotValue(
        snapshot_epoch=1, state_epoch=2, start_offset=3, delivery_complete_count=0,
        create_timestamp=2_000, write_timestamp=2_000,
    )  # fmt: skip
    assert harness.read(leader_epoch=5) == StateAnswer(*OLD_LEADER)
    assert harness.write((3, 3, 2, 1), leader_epoch=6, state_epoch=1) == Answer(*OLD_STATE)
    assert harness.initialize(state_epoch=1) == Answer(*OLD_STATE)
    assert harness.read(leader_epoch=6) == StateAnswer(state_epoch=2, start_offset=3)
    assert len(harness.log) == 4, "the leader epoch was current, so no record was written"


def test_write_is_an_update_record() -> None:
    harness = initialized()
    assert harness.write((0, 9, 0, 1), (10, 12, 2, 1), start=0, count=3) == Answer()
    assert harness.last.key == ShareUpdateKey(group_id="g", topic_id=ORDERS, partition=0)
    (first, second) = (StateBatch(0, 9, 0, 1), StateBatch(10, 12, 2, 1))
    value = harness.last.value
    assert isinstance(value, ShareUpdateValue)
    assert (value.snapshot_epoch, value.leader_epoch, value.start_offset) == (0, 0, 0)
    assert value.delivery_complete_count == 3
    assert harness.read() == StateAnswer(state_epoch=1, start_offset=0, batches=(first, second))


def test_write_changes_no_epoch() -> None:
    """Bug 75 (KAFKA-19456): a write with a newer epoch replaced the stored one."""
    harness = initialized()
    harness.read(leader_epoch=2)
    assert harness.write((0, 9, 2, 1), state_epoch=9, leader_epoch=9) == Answer()
    assert harness.ask(ReadSummary(KEY, 0)) == SummaryAnswer(
        state_epoch=1, leader_epoch=2, start_offset=0, delivery_complete_count=0
    )
    assert harness.write((10, 19, 2, 1), state_epoch=1, leader_epoch=2) == Answer(), (
        "the newer epoch of the earlier write fences nothing"
    )


def test_new_leader_epoch_is_written_once() -> None:
    harness = initialized()
    harness.write((0, 9, 0, 1))
    before = len(harness.log)
    assert harness.read(leader_epoch=4).batches == (StateBatch(0, 9, 0, 1),)
    value = harness.last.value
    assert isinstance(value, ShareUpdateValue)
    assert (value.leader_epoch, value.start_offset, value.state_batches) == (4, 0, ())
    assert harness.read(leader_epoch=4).batches == (StateBatch(0, 9, 0, 1),)
    assert len(harness.log) == before + 1
    assert harness.read(leader_epoch=3) == StateAnswer(*OLD_LEADER)
    assert harness.write((0, 9, 2, 1), leader_epoch=3) == Answer(*OLD_LEADER)


def test_start_offset_never_decreases() -> None:
    harness = initialized()
    harness.write((0, 19, 0, 1), start=10, count=1)
    assert harness.write((5, 12, 2, 1), start=5, count=7) == Answer()
    assert harness.read() == StateAnswer(
        state_epoch=1, start_offset=10, batches=(StateBatch(10, 12, 2, 1), StateBatch(13, 19, 0, 1))
    )
    assert harness.write(start=-1, count=9) == Answer()
    assert harness.state().start_offset == 10


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(20, 1, 1), (20, -1, -1), (10, 3, 5), (10, 8, 8), (10, -1, 5), (9, 100, 5), (-1, 100, 5)],
)
def test_complete_count_belongs_to_the_start_offset(start: int, count: int, expected: int) -> None:
    """Bug 83 (KAFKA-20034): a later start offset replaces the count, the same one keeps the maximum, and an
    earlier one changes nothing."""
    harness = initialized()
    harness.write(start=10, count=5)
    harness.write(start=start, count=count)
    assert harness.state().delivery_complete_count == expected
    assert harness.ask(ReadSummary(KEY, 0)).delivery_complete_count == expected
    harness.read(leader_epoch=1)
    assert harness.state().delivery_complete_count == expected, "a new leader does not change the count"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_snapshot_follows_the_configured_number_of_updates(limit: int) -> None:
    """Bug 83 (the review of PR 21426): the snapshot came one update late."""
    harness = initialized(updates_per_snapshot=limit)
    for offset in range(4 * (limit + 1)):
        harness.now_ms += 1
        harness.write((offset, offset, 2, 1), start=0, count=offset + 1)
        due = offset % (limit + 1) == limit
        assert isinstance(harness.last.value, ShareSnapshotValue if due else ShareUpdateValue), offset
        assert harness.state().snapshot_epoch == (offset + 1) // (limit + 1)
    value = harness.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.create_timestamp, value.write_timestamp) == (harness.now_ms, harness.now_ms)
    (batch,) = value.state_batches
    assert (batch.first_offset, batch.last_offset) == (0, 4 * (limit + 1) - 1)


def test_due_snapshot_has_the_new_leader_epoch() -> None:
    harness = initialized(updates_per_snapshot=0)
    harness.write((0, 9, 2, 1), start=5, count=5)
    harness.read(leader_epoch=8)
    value = harness.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.leader_epoch, value.state_epoch, value.start_offset) == (8, 1, 5)
    assert value.delivery_complete_count == 5
    assert len(value.state_batches) == 1


def test_overlapping_batches_are_split() -> None:
    """Bug 84 (the review of PR 17011): 100 to 109, and 105 by itself, were both kept."""
    harness = initialized()
    harness.write((100, 109, 0, 1), start=100)
    harness.write((105, 105, 2, 1), start=100)
    assert harness.read().batches == (
        StateBatch(100, 104, 0, 1),
        StateBatch(105, 105, 2, 1),
        StateBatch(106, 109, 0, 1),
    )


def test_delete_writes_one_tombstone() -> None:
    harness = initialized()
    assert harness.ask(Delete(KEY)) == Answer()
    assert harness.last.value is None
    assert harness.shard.states == {}
    before = len(harness.log)
    assert harness.ask(Delete(KEY)) == Answer()
    assert len(harness.log) == before
    assert harness.read() == StateAnswer(
        INVALID, "Read operation on uninitialized share partition not allowed."
    )
    assert harness.write((0, 1, 2, 1)) == Answer(
        INVALID, "Write operation on uninitialized share partition not allowed."
    )
    assert harness.initialize(state_epoch=0) == Answer(), "the tombstone removed the fenced epochs"
    assert harness.state().snapshot_epoch == 0


def test_unknown_share_partition_has_an_empty_summary() -> None:
    assert ShareStateHarness().ask(ReadSummary(KEY, 9)) == SummaryAnswer()


NEGATIVE = KEY._replace(partition=-1)
BEYOND_COUNT = KEY._replace(partition=3)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (Initialize(NEGATIVE, -1, 0), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Initialize(KEY, -1, 0), Answer(INVALID, "The state epoch cannot be a negative number.")),
        (Initialize(UNKNOWN, 0, 0), Answer(*NO_TOPIC)),
        (Initialize(BEYOND_COUNT, 0, 0), Answer(*NO_TOPIC)),
        (Read(NEGATIVE, -1), StateAnswer(INVALID, "The partition id cannot be a negative number.")),
        (Read(KEY, -1), StateAnswer(INVALID, "The leader epoch cannot be a negative number.")),
        (Read(UNKNOWN, 0),
         StateAnswer(INVALID, "Read operation on uninitialized share partition not allowed.")),
        (Write(NEGATIVE, -1, -1, 0, 0, ()), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Write(KEY, -1, -1, 0, 0, ()), Answer(INVALID, "The leader epoch cannot be a negative number.")),
        (Write(KEY, -1, 0, 0, 0, ()), Answer(INVALID, "The state epoch cannot be a negative number.")),
        (Write(UNKNOWN, 0, 0, 0, 0, ()),
         Answer(INVALID, "Write operation on uninitialized share partition not allowed.")),
        (ReadSummary(NEGATIVE, 0), SummaryAnswer(INVALID, "The partition id cannot be a negative number.")),
        (ReadSummary(UNKNOWN, 0), SummaryAnswer(*NO_TOPIC)),
        (ReadSummary(BEYOND_COUNT, 0), SummaryAnswer(*NO_TOPIC)),
        (Delete(NEGATIVE), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Delete(UNKNOWN), Answer(*NO_TOPIC)),
        (Delete(BEYOND_COUNT), Answer(*NO_TOPIC)),
    ],
)  # fmt: skip
def test_rejected_request_writes_nothing(request_: object, answer: object) -> None:
    harness = ShareStateHarness()
    assert harness.ask(request_) == answer
    assert harness.log == []


def test_requests_for_a_deleted_topic_are_rejected() -> None:
    """Bug 88: a recreated topic has another id and starts without state."""
    harness = initialized()
    harness.topics = type(harness.topics)(
        [topic for topic in harness.topics.by_id.values() if topic.id != ORDERS]
    )
    assert harness.write((0, 9, 2, 1)) == Answer(*NO_TOPIC)
    assert harness.read() == StateAnswer(*NO_TOPIC)
    assert harness.initialize(state_epoch=2) == Answer(*NO_TOPIC)
    assert len(harness.log) == 1
    recreated = KEY._replace(topic_id=BILLS)
    assert harness.ask(ReadSummary(recreated, 0)) == SummaryAnswer()


def test_fenced_epochs_are_reported_before_missing_topics() -> None:
    harness = initialized()
    harness.read(leader_epoch=3)
    harness.topics = type(harness.topics)()
    assert harness.write(leader_epoch=2, state_epoch=0) == Answer(*OLD_LEADER)
    assert harness.write(leader_epoch=3, state_epoch=0) == Answer(*OLD_STATE)
    assert harness.read(leader_epoch=2) == StateAnswer(*OLD_LEADER)
    assert harness.initialize(state_epoch=0) == Answer(*OLD_STATE)


def test_batch_with_negative_length_is_rejected() -> None:
    """Kafka writes such a batch, and fails to load its log after the next update."""
    harness = initialized()
    rejected = Answer(INVALID, "A state batch ends before it begins.")
    assert harness.write((10, 9, 2, 1)) == rejected
    assert harness.write((0, 5, 2, 1), (7, 6, 2, 1)) == rejected
    assert len(harness.log) == 1
