"""Loading a share partition from its state, and the gaps in that state."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_empty_state() -> None:
    play = Play(start=7)
    assert play.bounds == (7, 7)
    assert play.core.next_fetch_offset == 7
    assert play.core.can_acquire
    assert (play.core.state_epoch, play.core.leader_epoch) == (3, 2)


def test_loaded_batches_are_in_the_window() -> None:
    play = Play(start=5, state="5-10:0*2 11-15:4*3")
    assert play.window == "5-10 free*2 | 11-15 archived*3"
    assert play.bounds == (5, 15)
    assert play.core.next_fetch_offset == 5
    assert play.core.delivery_complete_count == 5
    assert play.acquire("a", "5-15 16-20") == "5-10*3 16-20*1"


def test_start_moves_over_completed_batches() -> None:
    play = Play(start=5, state="5-10:2*1 11-15:4*3")
    assert play.window == ""
    assert play.bounds == (16, 16)
    assert play.core.next_fetch_offset == 16


def test_acquired_records_of_the_former_leader_are_available() -> None:
    assert Play(state="0-4:1*2").window == "0-4 free*2"


@pytest.mark.parametrize(
    "start, state",
    [(5, "4-6:0*1"), (0, "5-4:0*1"), (0, "0-5:0*1 5-9:2*1"), (0, "5-9:0*1 0-4:0*1"), (0, "0-4:9*1")],
)
def test_invalid_state_is_rejected(start: int, state: str) -> None:
    with pytest.raises(ValueError):
        Play(start=start, state=state)


class TestGaps:
    """Offsets without a state below ones that have a state: they were acquired and never acknowledged."""

    def test_gap_at_the_beginning(self) -> None:
        play = Play(start=10, state="21-30:2*2")
        assert play.core.next_fetch_offset == 10
        assert play.acquire("a", "10-20 21-30") == "10-20*1"
        assert play.core.next_fetch_offset == 31
        assert play.bounds == (10, 30)
        assert play.acknowledge("a", "10-20:1") == "10 21 10-20:2*1"
        assert play.bounds == (31, 31)

    def test_several_gaps(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:0*1 61-70:4*1 81-90:0*1")
        assert play.core.delivery_complete_count == 20
        assert play.acquire("a", "11-85") == "11-20*1 31-40*1 41-50*2 51-60*1 71-80*1 81-85*2"
        assert play.core.next_fetch_offset == 86
        assert play.bounds == (11, 90)

    def test_record_limit_applies_to_gaps(self) -> None:
        play = Play(start=11, state="11-20:2*2 31-40:4*1")
        assert play.bounds == (21, 40)
        assert play.acquire("a", "21-23 24-26 27-28", max_records=6) == "21-26*1"
        assert play.core.next_fetch_offset == 27
        assert play.acquire("a", "27-28 29-45", max_records=500) == "27-30*1 41-45*1"

    def test_available_records_before_a_gap_come_first(self) -> None:
        play = Play(start=11, state="11-20:0*2 31-40:0*1")
        assert play.acquire("a", "11-20 21-40", max_records=8) == "11-20*3"
        assert play.core.next_fetch_offset == 21
        assert play.acquire("a", "21-40") == "21-30*1 31-40*2"

    def test_gaps_between_batches_of_the_log(self) -> None:
        play = Play(start=10, state="15-20:2*2 30-40:4*1")
        assert play.acquire("a", "10-20 30-50") == "10-14*1 21-29*1 41-50*1"
        assert play.core.next_fetch_offset == 51

    def test_gap_without_records_in_the_log(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.acquire("a", "21-35 36-60") == "31-40*1 51-60*1"
        assert play.core.next_fetch_offset == 61

    def test_gap_with_some_records_in_the_log(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.acquire("a", "16-35 36-60") == "16-20*1 31-40*1 51-60*1"
        assert play.bounds == (16, 60)

    def test_log_batch_larger_than_a_gap(self) -> None:
        play = Play(start=10, state="15-30:2*1")
        assert play.acquire("a", "10-30", max_records=1) == "10-14*1"

    def test_gap_is_read_after_a_release(self) -> None:
        play = Play(start=0, state="10-19:0*1 30-39:0*1")
        assert play.acquire("a", "0-9 10-19", max_records=15) == "0-9*1 10-19*2"
        play.acknowledge("a", "5:2")
        assert play.core.next_fetch_offset == 5
        assert play.acquire("a", "0-9 10-19 20-29 30-39") == "5*2 20-29*1 30-39*2"

    def test_start_does_not_move_over_a_gap(self) -> None:
        play = Play(start=0, state="0-9:0*1 20-29:2*1 40-49:2*1")
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-9:1")
        assert play.bounds == (10, 49)
        play.acquire("a", "10-19")
        play.acknowledge("a", "10-19:1")
        assert play.bounds == (30, 49)
        play.acquire("a", "30-39")
        play.acknowledge("a", "30-39:1")
        assert play.bounds == (50, 50)

    def test_records_of_a_gap_can_be_released(self) -> None:
        play = Play(start=0, state="10-19:2*1")
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-9:2")
        assert play.core.next_fetch_offset == 0
        assert play.acquire("a", "0-9") == "0-9*2"

    def test_gap_below_the_log_start_is_not_fetched(self) -> None:
        play = Play(start=0, state="10-19:2*1 30-39:0*1")
        play.move_log_start(25)
        assert play.bounds == (25, 39)
        assert play.core.next_fetch_offset == 25
        play.move_log_start(30)
        assert play.core.next_fetch_offset == 30

    def test_gap_without_records_does_not_block_the_start(self) -> None:
        """Kafka fetches the gap repeatedly until it reads a record behind it; its start offset never moves
        again, and the window fills up."""
        play = Play(start=21, state="31-40:2*1", locks=40)
        assert play.acquire("a", "31-40") == "written 41 0"
        assert play.bounds == (41, 41)
        assert play.core.next_fetch_offset == 41

    def test_gap_without_records_does_not_block_later_batches(self) -> None:
        play = Play(start=21, state="31-40:2*1")
        assert play.acquire("a", "31-40 41-50") == "41-50*1"
        assert play.acknowledge("a", "41-50:1") == "21 20 41-50:2*1"
        assert play.bounds == (51, 51)

    def test_failed_write_of_a_gap_is_repeated(self) -> None:
        play = Play(start=0, state="10-19:2*1")
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "0-9:1")
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.bounds == (0, 19)
        play.hold_writes = False
        play.acknowledge("a", "0-9:1")
        assert play.bounds == (20, 20)
