"""The share coordinator's rules, one by one: what is refused and why, what is written, what is then known."""

from __future__ import annotations

import pytest
from tests.share_state.asking import BILLS, KEY, NOBODY, ORDERS, Asked

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


def begun(**said: int) -> Asked:
    asked = Asked(**said)
    assert asked.initialize() == Answer()
    return asked


def test_a_beginning_is_a_snapshot() -> None:
    asked = Asked()
    assert asked.initialize(state_epoch=3, start_offset=-1) == Answer()
    assert asked.last.key == ShareSnapshotKey(group_id="g", topic_id=ORDERS, partition=0)
    assert asked.last.value == ShareSnapshotValue(
        state_epoch=3,
        start_offset=-1,
        delivery_complete_count=-1,
        create_timestamp=1_000,
        write_timestamp=1_000,
    )


def test_where_the_start_is_known_the_lag_is_as_well() -> None:
    asked = Asked()
    asked.initialize(start_offset=7)
    assert asked.ask(ReadSummary(KEY, 0)) == SummaryAnswer(
        state_epoch=1, start_offset=7, delivery_complete_count=0
    )


def test_to_begin_anew_forgets_all_but_the_epochs_that_are_over() -> None:
    asked = begun()
    asked.read(leader_epoch=6)
    asked.write((0, 9, 2, 1), leader_epoch=6, start=0, count=10)
    asked.now_ms = 2_000
    assert asked.initialize(state_epoch=2, start_offset=3) == Answer()
    assert asked.last.value == ShareSnapshotValue(
        snapshot_epoch=1, state_epoch=2, start_offset=3, delivery_complete_count=0,
        create_timestamp=2_000, write_timestamp=2_000,
    )  # fmt: skip
    assert asked.read(leader_epoch=5) == StateAnswer(*OLD_LEADER)
    assert asked.write((3, 3, 2, 1), leader_epoch=6, state_epoch=1) == Answer(*OLD_STATE)
    assert asked.initialize(state_epoch=1) == Answer(*OLD_STATE)
    assert asked.read(leader_epoch=6) == StateAnswer(state_epoch=2, start_offset=3)
    assert len(asked.log) == 4, "that leader's epoch was known"


def test_an_update_says_what_was_told() -> None:
    asked = begun()
    assert asked.write((0, 9, 0, 1), (10, 12, 2, 1), start=0, count=3) == Answer()
    assert asked.last.key == ShareUpdateKey(group_id="g", topic_id=ORDERS, partition=0)
    (first, second) = (StateBatch(0, 9, 0, 1), StateBatch(10, 12, 2, 1))
    value = asked.last.value
    assert isinstance(value, ShareUpdateValue)
    assert (value.snapshot_epoch, value.leader_epoch, value.start_offset) == (0, 0, 0)
    assert value.delivery_complete_count == 3
    assert asked.read() == StateAnswer(state_epoch=1, start_offset=0, batches=(first, second))


def test_a_write_moves_no_epoch() -> None:
    """Bug 75 (KAFKA-19456): a write with a later epoch made it the one that is known."""
    asked = begun()
    asked.read(leader_epoch=2)
    assert asked.write((0, 9, 2, 1), state_epoch=9, leader_epoch=9) == Answer()
    assert asked.ask(ReadSummary(KEY, 0)) == SummaryAnswer(
        state_epoch=1, leader_epoch=2, start_offset=0, delivery_complete_count=0
    )
    assert asked.write((10, 19, 2, 1), state_epoch=1, leader_epoch=2) == Answer(), "it was not fenced by it"


def test_who_takes_over_is_written_down_once() -> None:
    asked = begun()
    asked.write((0, 9, 0, 1))
    before = len(asked.log)
    assert asked.read(leader_epoch=4).batches == (StateBatch(0, 9, 0, 1),)
    value = asked.last.value
    assert isinstance(value, ShareUpdateValue)
    assert (value.leader_epoch, value.start_offset, value.state_batches) == (4, 0, ())
    assert asked.read(leader_epoch=4).batches == (StateBatch(0, 9, 0, 1),)
    assert len(asked.log) == before + 1
    assert asked.read(leader_epoch=3) == StateAnswer(*OLD_LEADER)
    assert asked.write((0, 9, 2, 1), leader_epoch=3) == Answer(*OLD_LEADER)


def test_the_start_offset_never_goes_back() -> None:
    asked = begun()
    asked.write((0, 19, 0, 1), start=10, count=1)
    assert asked.write((5, 12, 2, 1), start=5, count=7) == Answer()
    assert asked.read() == StateAnswer(
        state_epoch=1, start_offset=10, batches=(StateBatch(10, 12, 2, 1), StateBatch(13, 19, 0, 1))
    )
    assert asked.write(start=-1, count=9) == Answer()
    assert asked.state().start_offset == 10


@pytest.mark.parametrize(
    ("start", "count", "then"),
    [(20, 1, 1), (20, -1, -1), (10, 3, 5), (10, 8, 8), (10, -1, 5), (9, 100, 5), (-1, 100, 5)],
)
def test_how_many_are_done_is_counted_from_the_start_offset(start: int, count: int, then: int) -> None:
    """Bug 83 (KAFKA-20034): a later start counts anew, the same one never loses, an earlier one says none."""
    asked = begun()
    asked.write(start=10, count=5)
    asked.write(start=start, count=count)
    assert asked.state().delivery_complete_count == then
    assert asked.ask(ReadSummary(KEY, 0)).delivery_complete_count == then
    asked.read(leader_epoch=1)
    assert asked.state().delivery_complete_count == then, "whoever takes over changes nothing of it"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_snapshot_is_due_after_exactly_so_many_updates(limit: int) -> None:
    """Bug 83 (the review of PR 21426): it came one update late."""
    asked = begun(updates_per_snapshot=limit)
    for offset in range(4 * (limit + 1)):
        asked.now_ms += 1
        asked.write((offset, offset, 2, 1), start=0, count=offset + 1)
        due = offset % (limit + 1) == limit
        assert isinstance(asked.last.value, ShareSnapshotValue if due else ShareUpdateValue), offset
        assert asked.state().snapshot_epoch == (offset + 1) // (limit + 1)
    value = asked.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.create_timestamp, value.write_timestamp) == (asked.now_ms, asked.now_ms)
    (batch,) = value.state_batches
    assert (batch.first_offset, batch.last_offset) == (0, 4 * (limit + 1) - 1)


def test_a_snapshot_that_is_due_says_who_took_over() -> None:
    asked = begun(updates_per_snapshot=0)
    asked.write((0, 9, 2, 1), start=5, count=5)
    asked.read(leader_epoch=8)
    value = asked.last.value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.leader_epoch, value.state_epoch, value.start_offset) == (8, 1, 5)
    assert value.delivery_complete_count == 5
    assert len(value.state_batches) == 1


def test_what_overlaps_is_told_once() -> None:
    """Bug 84 (the review of PR 17011): 100 to 109, and 105 by itself, were both kept."""
    asked = begun()
    asked.write((100, 109, 0, 1), start=100)
    asked.write((105, 105, 2, 1), start=100)
    assert asked.read().batches == (
        StateBatch(100, 104, 0, 1),
        StateBatch(105, 105, 2, 1),
        StateBatch(106, 109, 0, 1),
    )


def test_to_forget_is_a_tombstone_and_twice_is_once() -> None:
    asked = begun()
    assert asked.ask(Delete(KEY)) == Answer()
    assert asked.last.value is None
    assert asked.shard.states == {}
    before = len(asked.log)
    assert asked.ask(Delete(KEY)) == Answer()
    assert len(asked.log) == before
    assert asked.read() == StateAnswer(
        INVALID, "Read operation on uninitialized share partition not allowed."
    )
    assert asked.write((0, 1, 2, 1)) == Answer(
        INVALID, "Write operation on uninitialized share partition not allowed."
    )
    assert asked.initialize(state_epoch=0) == Answer(), "no epoch is over any more"
    assert asked.state().snapshot_epoch == 0


def test_of_what_is_not_known_there_is_a_summary() -> None:
    assert Asked().ask(ReadSummary(KEY, 9)) == SummaryAnswer()


NEGATIVE = KEY._replace(partition=-1)
BEHIND = KEY._replace(partition=3)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (Initialize(NEGATIVE, -1, 0), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Initialize(KEY, -1, 0), Answer(INVALID, "The state epoch cannot be a negative number.")),
        (Initialize(NOBODY, 0, 0), Answer(*NO_TOPIC)),
        (Initialize(BEHIND, 0, 0), Answer(*NO_TOPIC)),
        (Read(NEGATIVE, -1), StateAnswer(INVALID, "The partition id cannot be a negative number.")),
        (Read(KEY, -1), StateAnswer(INVALID, "The leader epoch cannot be a negative number.")),
        (Read(NOBODY, 0),
         StateAnswer(INVALID, "Read operation on uninitialized share partition not allowed.")),
        (Write(NEGATIVE, -1, -1, 0, 0, ()), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Write(KEY, -1, -1, 0, 0, ()), Answer(INVALID, "The leader epoch cannot be a negative number.")),
        (Write(KEY, -1, 0, 0, 0, ()), Answer(INVALID, "The state epoch cannot be a negative number.")),
        (Write(NOBODY, 0, 0, 0, 0, ()),
         Answer(INVALID, "Write operation on uninitialized share partition not allowed.")),
        (ReadSummary(NEGATIVE, 0), SummaryAnswer(INVALID, "The partition id cannot be a negative number.")),
        (ReadSummary(NOBODY, 0), SummaryAnswer(*NO_TOPIC)),
        (ReadSummary(BEHIND, 0), SummaryAnswer(*NO_TOPIC)),
        (Delete(NEGATIVE), Answer(INVALID, "The partition id cannot be a negative number.")),
        (Delete(NOBODY), Answer(*NO_TOPIC)),
        (Delete(BEHIND), Answer(*NO_TOPIC)),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_no_trace(request_: object, answer: object) -> None:
    asked = Asked()
    assert asked.ask(request_) == answer
    assert asked.log == []


def test_nothing_is_done_for_a_topic_that_is_gone() -> None:
    """Bug 88: a topic of the same name is another one, and begins with nothing."""
    asked = begun()
    asked.topics = type(asked.topics)([topic for topic in asked.topics.by_id.values() if topic.id != ORDERS])
    assert asked.write((0, 9, 2, 1)) == Answer(*NO_TOPIC)
    assert asked.read() == StateAnswer(*NO_TOPIC)
    assert asked.initialize(state_epoch=2) == Answer(*NO_TOPIC)
    assert len(asked.log) == 1
    recreated = KEY._replace(topic_id=BILLS)
    assert asked.ask(ReadSummary(recreated, 0)) == SummaryAnswer()


def test_epochs_that_are_over_come_before_topics_that_are_gone() -> None:
    asked = begun()
    asked.read(leader_epoch=3)
    asked.topics = type(asked.topics)()
    assert asked.write(leader_epoch=2, state_epoch=0) == Answer(*OLD_LEADER)
    assert asked.write(leader_epoch=3, state_epoch=0) == Answer(*OLD_STATE)
    assert asked.read(leader_epoch=2) == StateAnswer(*OLD_LEADER)
    assert asked.initialize(state_epoch=0) == Answer(*OLD_STATE)


def test_a_batch_that_ends_before_it_begins_is_no_batch() -> None:
    """Kafka writes it down, and cannot load its log any more when another one is told."""
    asked = begun()
    refused = Answer(INVALID, "A state batch ends before it begins.")
    assert asked.write((10, 9, 2, 1)) == refused
    assert asked.write((0, 5, 2, 1), (7, 6, 2, 1)) == refused
    assert len(asked.log) == 1
