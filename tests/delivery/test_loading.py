"""What a share partition begins with, and the gaps that a former leader left behind."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_nothing_was_written_yet() -> None:
    play = Play(start=7)
    assert play.ends == (7, 7)
    assert play.core.next_fetch_offset == 7
    assert play.core.can_acquire
    assert (play.core.state_epoch, play.core.leader_epoch) == (3, 2)


def test_what_was_written_is_in_the_window() -> None:
    play = Play(start=5, state="5-10:0*2 11-15:4*3")
    assert play.window == "5-10 free*2 | 11-15 gone*3"
    assert play.ends == (5, 15)
    assert play.core.next_fetch_offset == 5
    assert play.core.delivery_complete_count == 5
    assert play.take("a", "5-15 16-20") == "5-10*3 16-20*1"


def test_what_is_done_is_over() -> None:
    play = Play(start=5, state="5-10:2*1 11-15:4*3")
    assert play.window == ""
    assert play.ends == (16, 16)
    assert play.core.next_fetch_offset == 16


def test_what_a_former_leader_had_given_out_is_available() -> None:
    assert Play(state="0-4:1*2").window == "0-4 free*2"


@pytest.mark.parametrize(
    "start, state",
    [(5, "4-6:0*1"), (0, "5-4:0*1"), (0, "0-5:0*1 5-9:2*1"), (0, "5-9:0*1 0-4:0*1"), (0, "0-4:9*1")],
)
def test_a_state_that_cannot_be(start: int, state: str) -> None:
    with pytest.raises(ValueError):
        Play(start=start, state=state)


class TestGaps:
    """Offsets that were given out and never written about, though later ones were."""

    def test_at_the_beginning(self) -> None:
        play = Play(start=10, state="21-30:2*2")
        assert play.core.next_fetch_offset == 10
        assert play.take("a", "10-20 21-30") == "10-20*1"
        assert play.core.next_fetch_offset == 31
        assert play.ends == (10, 30)
        assert play.ack("a", "10-20:1") == "10 21 10-20:2*1"
        assert play.ends == (31, 31)

    def test_several_of_them(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:0*1 61-70:4*1 81-90:0*1")
        assert play.core.delivery_complete_count == 20
        assert play.take("a", "11-85") == "11-20*1 31-40*1 41-50*2 51-60*1 71-80*1 81-85*2"
        assert play.core.next_fetch_offset == 86
        assert play.ends == (11, 90)

    def test_no_more_than_asked_for(self) -> None:
        play = Play(start=11, state="11-20:2*2 31-40:4*1")
        assert play.ends == (21, 40)
        assert play.take("a", "21-23 24-26 27-28", most=6) == "21-26*1"
        assert play.core.next_fetch_offset == 27
        assert play.take("a", "27-28 29-45", most=500) == "27-30*1 41-45*1"

    def test_what_comes_before_comes_first(self) -> None:
        play = Play(start=11, state="11-20:0*2 31-40:0*1")
        assert play.take("a", "11-20 21-40", most=8) == "11-20*3"
        assert play.core.next_fetch_offset == 21
        assert play.take("a", "21-40") == "21-30*1 31-40*2"

    def test_gaps_between_batches_of_the_log(self) -> None:
        play = Play(start=10, state="15-20:2*2 30-40:4*1")
        assert play.take("a", "10-20 30-50") == "10-14*1 21-29*1 41-50*1"
        assert play.core.next_fetch_offset == 51

    def test_the_log_does_not_have_one(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.take("a", "21-35 36-60") == "31-40*1 51-60*1"
        assert play.core.next_fetch_offset == 61

    def test_the_log_has_a_part_of_one(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.take("a", "16-35 36-60") == "16-20*1 31-40*1 51-60*1"
        assert play.ends == (16, 60)

    def test_a_batch_of_the_log_that_is_larger_than_one(self) -> None:
        play = Play(start=10, state="15-30:2*1")
        assert play.take("a", "10-30", most=1) == "10-14*1"

    def test_one_is_read_after_something_was_given_back(self) -> None:
        play = Play(start=0, state="10-19:0*1 30-39:0*1")
        assert play.take("a", "0-9 10-19", most=15) == "0-9*1 10-19*2"
        play.ack("a", "5:2")
        assert play.core.next_fetch_offset == 5
        assert play.take("a", "0-9 10-19 20-29 30-39") == "5*2 20-29*1 30-39*2"

    def test_the_start_does_not_move_over_one(self) -> None:
        play = Play(start=0, state="0-9:0*1 20-29:2*1 40-49:2*1")
        play.take("a", "0-9")
        play.ack("a", "0-9:1")
        assert play.ends == (10, 49)
        play.take("a", "10-19")
        play.ack("a", "10-19:1")
        assert play.ends == (30, 49)
        play.take("a", "30-39")
        play.ack("a", "30-39:1")
        assert play.ends == (50, 50)

    def test_records_in_one_can_be_given_back(self) -> None:
        play = Play(start=0, state="10-19:2*1")
        play.take("a", "0-9")
        play.ack("a", "0-9:2")
        assert play.core.next_fetch_offset == 0
        assert play.take("a", "0-9") == "0-9*2"

    def test_nobody_asks_for_what_a_log_that_begins_later_does_not_have(self) -> None:
        play = Play(start=0, state="10-19:2*1 30-39:0*1")
        play.log_begins(25)
        assert play.ends == (25, 39)
        assert play.core.next_fetch_offset == 25
        play.log_begins(30)
        assert play.core.next_fetch_offset == 30

    def test_one_that_the_log_does_not_have_holds_nothing_up(self) -> None:
        """Kafka asks for it again and again until it has read something from behind it, and its start offset
        never moves again: the window is full one day."""
        play = Play(start=21, state="31-40:2*1", locks=40)
        assert play.take("a", "31-40") == "written 41 0"
        assert play.ends == (41, 41)
        assert play.core.next_fetch_offset == 41

    def test_one_that_the_log_does_not_have_holds_up_nothing_behind(self) -> None:
        play = Play(start=21, state="31-40:2*1")
        assert play.take("a", "31-40 41-50") == "41-50*1"
        assert play.ack("a", "41-50:1") == "21 20 41-50:2*1"
        assert play.ends == (51, 51)

    def test_one_is_written_about_when_that_fails_at_first(self) -> None:
        play = Play(start=0, state="10-19:2*1")
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "0-9:1")
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.ends == (0, 19)
        play.waits = False
        play.ack("a", "0-9:1")
        assert play.ends == (20, 20)
