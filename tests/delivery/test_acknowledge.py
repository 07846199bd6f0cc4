"""Acknowledgements of members and their effect on records, in the cases of Kafka's `SharePartitionTest`."""

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
    "acks, written, window",
    [
        ("0-9:1", "0 10 0-9:2*1", ""),
        ("0-9:3", "0 10 0-9:4*1", ""),
        ("0-9:0", "0 10 0-9:4*1", ""),
        ("0-9:2", "0 0 0-9:0*1", "0-9 free*1"),
        ("0-4:1", "0 5 0-4:2*1", "5-9 a*1"),
        ("5-9:1", "0 5 5-9:2*1", "0-4 a*1 | 5-9 done*1"),
        ("3-4:1", "0 2 3-4:2*1", "0-2 a*1 | 3-4 done*1 | 5-9 a*1"),
        ("0-9:1,1,1,0,0,2,2,2,3,3", "0 7 0-2:2*1 3-4:4*1 5-7:0*1 8-9:4*1", "5-7 free*1 | 8-9 archived*1"),
        ("0-1:1 2-3:1 6:1", "0 5 0-3:2*1 6:2*1", "4-5 a*1 | 6 done*1 | 7-9 a*1"),
        ("6:1 0-1:1", "0 3 6:2*1 0-1:2*1", "2-5 a*1 | 6 done*1 | 7-9 a*1"),
    ],
)
def test_acknowledgements_are_written(acks: str, written: str, window: str) -> None:
    play = Play()
    play.acquire("a", "0-9")
    assert play.acknowledge("a", acks) == written
    assert play.window == window


def test_acknowledgement_over_several_batches() -> None:
    play = Play()
    play.acquire("a", "0-4")
    play.acquire("a", "5-9")
    play.acquire("a", "20-29")
    assert play.acknowledge("a", "3-22:1") == "0 10 3-9:2*1 20-22:2*1"
    assert play.window == "0-2 a*1 | 3-4 done*1 | 5-9 done*1 | 20-22 done*1 | 23-29 a*1"
    assert play.acknowledge("a", "0-2:1") == "0 13 0-2:2*1"
    assert play.bounds == (23, 29)


def test_start_moves_over_gaps_of_the_log() -> None:
    play = Play()
    play.acquire("a", "0-4")
    play.acquire("a", "20-24")
    play.acknowledge("a", "0-4:1")
    assert play.bounds == (20, 24)


@pytest.mark.parametrize(
    "member, acks, error",
    [
        ("a", "30-39:1", FIRST_IS_PAST),
        ("a", "25-35:1", LAST_IS_PAST),
        ("a", "12-13:1", FIRST_IS_PAST),  # a gap of the log
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
def test_invalid_acknowledgement_changes_nothing(member: str, acks: str, error: str) -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "20-29")
    play.acquire("a", "40-49")
    play.acknowledge("a", "25-26:1 40-49:1")
    before = play.window
    assert play.acknowledge(member, acks) == error
    assert _states(play.window) == _states(before)
    assert play.core.delivery_complete_count == 12
    assert play.acknowledge("a", "0-9:1").startswith("0 22")


def _states(window: str) -> dict[int, str]:
    """Return the state of each offset: a rejected request may have split cells of the window."""
    states = {}
    for cell in window.split(" | "):
        place, _, state = cell.partition(" ")
        first, _, last = place.partition("-")
        for offset in range(int(first), int(last or first) + 1):
            states[offset] = state
    return states


def test_empty_window_rejects_acknowledgements() -> None:
    play = Play(start=5)
    assert play.acknowledge("a", "5-9:1") == NOT_IN_THE_CACHE
    assert play.acknowledge("a", "0-9:1") == NOT_IN_THE_CACHE


def test_acknowledgement_below_the_start_is_ignored() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-9:1")
    assert play.acknowledge("a", "0-9:1") == ""
    assert play.acknowledge("b", "3:3") == ""


def test_acknowledgement_is_trimmed_to_the_start() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-4:1")
    assert play.acknowledge("a", "0-9:1") == "5 5 5-9:2*1"


def test_batch_with_a_record_of_another_member_is_rejected() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acknowledge("a", "5-6:2")
    assert play.acquire("b", "0-9") == "5-6*2"
    assert play.acknowledge("a", "0-9:1") == OFFSET_OF_ANOTHER
    assert play.acknowledge("a", "0-4:1") == "0 5 0-4:2*1"
    assert play.acknowledge("b", "5-6:1") == "5 2 5-6:2*2"
    assert play.window == "7-9 a*1"


class TestFailedWrite:
    """After a failed write the member owns the records again and may repeat the acknowledgement."""

    @pytest.mark.parametrize("acks", ["0-9:1", "0-9:2", "0-9:3", "3-4:1", "0-9:1,2,3,0,1,2,3,0,1,2"])
    def test_state_is_restored(self, acks: str) -> None:
        play = Play(dead_letters=True)
        play.acquire("a", "0-9")
        play.hold_writes = True
        assert play.acknowledge("a", acks)
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert set(_states(play.window).values()) == {"a*1"}
        assert play.core.delivery_complete_count == 0
        assert play.dead_letters == []
        assert play.core.lock_end_ms == 1000
        play.hold_writes = False
        assert play.acknowledge("a", "0-9:1") == "0 10 0-9:2*1"
        assert play.bounds == (10, 10)

    def test_records_are_unavailable_during_the_write(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", "0-4:2")
        assert play.window == "0-4 free?*1"
        assert play.core.next_fetch_offset == 5
        assert play.acquire("b", "0-4 5-9", fetch_offset=0) == "5-9*1"
        assert play.acknowledge("a", "0-4:1") == BATCH_NOT_ACQUIRED
        assert play.release("a") == ""
        play.complete_write()
        assert play.core.next_fetch_offset == 0
        assert play.acquire("b", "0-4") == "0-4*2"

    def test_one_of_two_writes_fails(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.acquire("a", "5-9")
        play.hold_writes = True
        play.acknowledge("a", "0-4:1")
        play.acknowledge("a", "5-9:1")
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        play.complete_write()
        assert play.window == "0-4 a*1 | 5-9 done*1"
        assert play.bounds == (0, 9)


class TestRenew:
    """KIP-1222: RENEW restarts the acquisition lock and writes nothing."""

    def test_renew_batch(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.advance_time(600)
        assert play.acknowledge("a", "0-9:4") == ""
        assert play.core.lock_end_ms == 1600
        assert play.advance_time(500) == ""
        assert play.advance_time(500) == "0 0 0-9:0*1"
        assert play.core.counts.acknowledged[4] == 10

    def test_renew_some_offsets(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.advance_time(600)
        assert play.acknowledge("a", "0-9:4,1,4,4,2,4,4,4,4,4") == "0 1 1:2*1 4:0*1"
        assert play.advance_time(400) == ""
        assert play.advance_time(600) == "0 1 0:0*1 2-3:0*1 5-9:0*1"

    def test_renew_can_be_disabled(self) -> None:
        play = Play(renew=False)
        play.acquire("a", "0-9")
        assert play.acknowledge("a", "0-9:4") == NO_RENEWALS
        assert play.acknowledge("a", "0-1:1 3:4") == NO_RENEWALS
        assert play.core.delivery_complete_count == 0

    def test_expired_lock_cannot_be_renewed(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.advance_time(1000)
        assert play.acknowledge("a", "0-9:4") == BATCH_NOT_ACQUIRED

    def test_rejected_request_renews_nothing(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.advance_time(600)
        assert play.acknowledge("a", "0-5:4 20:1") == FIRST_IS_PAST
        assert play.core.lock_end_ms == 1000


def test_acknowledgements_are_counted_after_the_write() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.hold_writes = True
    play.acknowledge("a", "0-5:0,1,1,2,3,3")
    assert play.core.counts.acknowledged == [0, 0, 0, 0, 0]
    play.complete_write()
    assert play.core.counts.acknowledged == [1, 2, 1, 2, 0]
    assert play.core.counts.archived == 2
    assert (play.core.counts.delivered, play.core.counts.redelivered) == (10, 0)
    play.acquire("a", "0-9", fetch_offset=0)
    assert (play.core.counts.delivered, play.core.counts.redelivered) == (11, 1)


def test_late_acknowledgement_waits_until_the_start_is_written() -> None:
    """The last lock of the records expired, but the write failed: the persisted state still has them as
    available. A late acknowledgement succeeds once the new start offset is written."""
    play = Play(limit=1)
    play.acquire("a", "0-9")
    play.hold_writes = True
    play.advance_time(1000)
    play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
    assert play.core.start_offset == 10
    play.hold_writes = False
    assert play.acknowledge("a", "0-4:1") == "10 0"
    assert play.acknowledge("a", "5-9:1") == "", "the start offset is written now"


def test_written_start_does_not_cover_later_records() -> None:
    play = Play(limit=1)
    play.acquire("a", "0-4")
    play.acquire("b", "5-9")
    play.now_ms = 500
    assert not play.acknowledge("a", "0-4:4")
    play.hold_writes = True
    play.advance_time(500)
    play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
    play.hold_writes = False
    assert play.acknowledge("a", "0-4:1") == "0 10 0-4:2*1", "the persisted start offset is 0"
    assert play.core.start_offset == 10
    assert play.acknowledge("b", "5-9:1") == "10 0"
