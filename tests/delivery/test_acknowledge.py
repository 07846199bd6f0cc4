"""What members may say of records, and what becomes of these; in the cases that Kafka's tests have."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors

NOT_IN_THE_CACHE = (
    "INVALID_RECORD_STATE: Batch record not found. The request batch offsets are not found in the cache."
)
FIRST_IS_PAST = (
    "INVALID_REQUEST: Batch record not found. The first offset in request is past acquired records."
)
LAST_IS_PAST = "INVALID_REQUEST: Batch record not found. The last offset in request is past acquired records."
BATCH_NOT_ACQUIRED = (
    "INVALID_RECORD_STATE: The batch cannot be acknowledged. The batch is not in the acquired state."
)
OFFSET_NOT_ACQUIRED = "INVALID_RECORD_STATE: The offset cannot be acknowledged. The offset is not acquired."
BATCH_OF_ANOTHER = "INVALID_RECORD_STATE: Member is not the owner of batch record"
OFFSET_OF_ANOTHER = "INVALID_RECORD_STATE: Member is not the owner of offset"
NO_RENEWALS = "INVALID_RECORD_STATE: Renewing acquisition locks is not enabled for the group."


@pytest.mark.parametrize(
    "said, written, window",
    [
        ("0-9:1", "0 10 0-9:2*1", ""),
        ("0-9:3", "0 10 0-9:4*1", ""),
        ("0-9:0", "0 10 0-9:4*1", ""),
        ("0-9:2", "0 0 0-9:0*1", "0-9 free*1"),
        ("0-4:1", "0 5 0-4:2*1", "5-9 a*1"),
        ("5-9:1", "0 5 5-9:2*1", "0-4 a*1 | 5-9 done*1"),
        ("3-4:1", "0 2 3-4:2*1", "0-2 a*1 | 3-4 done*1 | 5-9 a*1"),
        ("0-9:1,1,1,0,0,2,2,2,3,3", "0 7 0-2:2*1 3-4:4*1 5-7:0*1 8-9:4*1", "5-7 free*1 | 8-9 gone*1"),
        ("0-1:1 2-3:1 6:1", "0 5 0-3:2*1 6:2*1", "4-5 a*1 | 6 done*1 | 7-9 a*1"),
        ("6:1 0-1:1", "0 3 6:2*1 0-1:2*1", "2-5 a*1 | 6 done*1 | 7-9 a*1"),
    ],
)
def test_what_is_said_is_written(said: str, written: str, window: str) -> None:
    play = Play()
    play.take("a", "0-9")
    assert play.ack("a", said) == written
    assert play.window == window


def test_over_several_batches() -> None:
    play = Play()
    play.take("a", "0-4")
    play.take("a", "5-9")
    play.take("a", "20-29")
    assert play.ack("a", "3-22:1") == "0 10 3-9:2*1 20-22:2*1"
    assert play.window == "0-2 a*1 | 3-4 done*1 | 5-9 done*1 | 20-22 done*1 | 23-29 a*1"
    assert play.ack("a", "0-2:1") == "0 13 0-2:2*1"
    assert play.ends == (23, 29)


def test_the_start_moves_over_what_the_log_does_not_have() -> None:
    play = Play()
    play.take("a", "0-4")
    play.take("a", "20-24")
    play.ack("a", "0-4:1")
    assert play.ends == (20, 24)


@pytest.mark.parametrize(
    "member, said, refusal",
    [
        ("a", "30-39:1", FIRST_IS_PAST),
        ("a", "25-35:1", LAST_IS_PAST),
        ("a", "12-13:1", FIRST_IS_PAST),  # the log has nothing there
        ("a", "8-12:1", LAST_IS_PAST),
        ("b", "0-9:1", BATCH_OF_ANOTHER),
        ("b", "2-3:1", BATCH_OF_ANOTHER),
        ("b", "20-24:1", OFFSET_OF_ANOTHER),
        ("a", "25:1", OFFSET_NOT_ACQUIRED),
        ("a", "20-29:1", OFFSET_NOT_ACQUIRED),
        ("a", "40-49:1", BATCH_NOT_ACQUIRED),
        ("a", "42:1", BATCH_NOT_ACQUIRED),
        ("a", "0-9:1 40:1", BATCH_NOT_ACQUIRED),
        ("a", "0-3:1 2-5:1", OFFSET_NOT_ACQUIRED),
        ("a", "0-9:1 0-9:1", BATCH_NOT_ACQUIRED),
        ("a", "0-9:5", "INVALID_REQUEST: Invalid acknowledge type: [5]"),
        ("a", "0-1:1,-1", "INVALID_REQUEST: Invalid acknowledge type: [1, -1]"),
        ("a", "0-1:", "INVALID_REQUEST: Invalid acknowledge type: []"),
        ("a", "0-2:1,1", "INVALID_REQUEST: The acknowledge types do not match the offsets."),
    ],
)
def test_what_cannot_be_said_changes_nothing(member: str, said: str, refusal: str) -> None:
    play = Play()
    play.take("a", "0-9")
    play.take("a", "20-29")
    play.take("a", "40-49")
    play.ack("a", "25-26:1 40-49:1")
    before = play.window
    assert play.ack(member, said) == refusal
    assert _states(play.window) == _states(before)
    assert play.core.delivery_complete_count == 12
    assert play.ack("a", "0-9:1").startswith("0 22")


def _states(window: str) -> dict[int, str]:
    """By offset: a refusal may have cut what it looked at."""
    states = {}
    for cell in window.split(" | "):
        place, _, state = cell.partition(" ")
        first, _, last = place.partition("-")
        for offset in range(int(first), int(last or first) + 1):
            states[offset] = state
    return states


def test_an_empty_window_knows_nothing() -> None:
    play = Play(start=5)
    assert play.ack("a", "5-9:1") == NOT_IN_THE_CACHE
    assert play.ack("a", "0-9:1") == NOT_IN_THE_CACHE


def test_what_is_done_and_over_may_be_said_again() -> None:
    play = Play()
    play.take("a", "0-9")
    play.ack("a", "0-9:1")
    assert play.ack("a", "0-9:1") == ""
    assert play.ack("b", "3:3") == ""


def test_what_is_partly_over_is_taken_for_the_rest() -> None:
    play = Play()
    play.take("a", "0-9")
    play.ack("a", "0-4:1")
    assert play.ack("a", "0-9:1") == "5 5 5-9:2*1"


def test_a_batch_of_which_a_record_was_given_to_another() -> None:
    play = Play()
    play.take("a", "0-9")
    play.ack("a", "5-6:2")
    assert play.take("b", "0-9") == "5-6*2"
    assert play.ack("a", "0-9:1") == OFFSET_OF_ANOTHER
    assert play.ack("a", "0-4:1") == "0 5 0-4:2*1"
    assert play.ack("b", "5-6:1") == "5 2 5-6:2*2"
    assert play.window == "7-9 a*1"


class TestTheWriteFails:
    """Then the member has the records again and may say it once more."""

    @pytest.mark.parametrize("said", ["0-9:1", "0-9:2", "0-9:3", "3-4:1", "0-9:1,2,3,0,1,2,3,0,1,2"])
    def test_all_is_as_before(self, said: str) -> None:
        play = Play(dead_letters=True)
        play.take("a", "0-9")
        play.waits = True
        assert play.ack("a", said)
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert set(_states(play.window).values()) == {"a*1"}
        assert play.core.delivery_complete_count == 0
        assert play.letters == []
        assert play.core.lock_end_ms == 1000
        play.waits = False
        assert play.ack("a", "0-9:1") == "0 10 0-9:2*1"
        assert play.ends == (10, 10)

    def test_nobody_can_have_them_meanwhile(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", "0-4:2")
        assert play.window == "0-4 free?*1"
        assert play.core.next_fetch_offset == 5
        assert play.take("b", "0-4 5-9", at=0) == "5-9*1"
        assert play.ack("a", "0-4:1") == BATCH_NOT_ACQUIRED
        assert play.release("a") == ""
        play.answer()
        assert play.core.next_fetch_offset == 0
        assert play.take("b", "0-4") == "0-4*2"

    def test_one_write_fails_and_another_does_not(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.take("a", "5-9")
        play.waits = True
        play.ack("a", "0-4:1")
        play.ack("a", "5-9:1")
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        play.answer()
        assert play.window == "0-4 a*1 | 5-9 done*1"
        assert play.ends == (0, 9)


class TestRenewing:
    """KIP-1222: the lock begins anew, and nothing is written."""

    def test_a_batch(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.passes(600)
        assert play.ack("a", "0-9:4") == ""
        assert play.core.lock_end_ms == 1600
        assert play.passes(500) == ""
        assert play.passes(500) == "0 0 0-9:0*1"
        assert play.core.counts.acknowledged[4] == 10

    def test_some_offsets(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.passes(600)
        assert play.ack("a", "0-9:4,1,4,4,2,4,4,4,4,4") == "0 1 1:2*1 4:0*1"
        assert play.passes(400) == ""
        assert play.passes(600) == "0 1 0:0*1 2-3:0*1 5-9:0*1"

    def test_it_may_be_forbidden(self) -> None:
        play = Play(renew=False)
        play.take("a", "0-9")
        assert play.ack("a", "0-9:4") == NO_RENEWALS
        assert play.ack("a", "0-1:1 3:4") == NO_RENEWALS
        assert play.core.delivery_complete_count == 0

    def test_too_late(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.passes(1000)
        assert play.ack("a", "0-9:4") == BATCH_NOT_ACQUIRED

    def test_nothing_is_renewed_by_what_is_refused(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.passes(600)
        assert play.ack("a", "0-5:4 20:1") == FIRST_IS_PAST
        assert play.core.lock_end_ms == 1000


def test_what_was_said_is_counted_once_it_is_written() -> None:
    play = Play()
    play.take("a", "0-9")
    play.waits = True
    play.ack("a", "0-5:0,1,1,2,3,3")
    assert play.core.counts.acknowledged == [0, 0, 0, 0, 0]
    play.answer()
    assert play.core.counts.acknowledged == [1, 2, 1, 2, 0]
    assert play.core.counts.archived == 2
    assert (play.core.counts.delivered, play.core.counts.redelivered) == (10, 0)
    play.take("a", "0-9", at=0)
    assert (play.core.counts.delivered, play.core.counts.redelivered) == (11, 1)


def test_what_the_start_has_passed_is_answered_when_that_is_written() -> None:
    """A lock ended for the last time, and that could not be written: as far as the disk knows the records are
    still to be delivered. A late word of them is fine, but not before the disk knows better."""
    play = Play(limit=1)
    play.take("a", "0-9")
    play.waits = True
    play.passes(1000)
    play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
    assert play.core.start_offset == 10
    play.waits = False
    assert play.ack("a", "0-4:1") == "10 0"
    assert play.ack("a", "5-9:1") == "", "now it is known"


def test_a_start_that_is_written_does_not_stand_for_what_is_behind_it() -> None:
    play = Play(limit=1)
    play.take("a", "0-4")
    play.take("b", "5-9")
    play.now_ms = 500
    assert not play.ack("a", "0-4:4")
    play.waits = True
    play.passes(500)
    play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
    play.waits = False
    assert play.ack("a", "0-4:1") == "0 10 0-4:2*1", "it is written that the start is 0"
    assert play.core.start_offset == 10
    assert play.ack("b", "5-9:1") == "10 0"
