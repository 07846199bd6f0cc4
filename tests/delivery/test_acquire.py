"""What a member is given of what was read, in the cases that Kafka's `SharePartition` was held to."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_a_batch_is_acquired_whole() -> None:
    play = Play()
    assert play.take("a", "0-4") == "0-4*1"
    assert (play.core.next_fetch_offset, play.ends) == (5, (0, 4))
    assert play.take("a", "5-9 10-19") == "5-19*1"
    assert play.window == "0-4 a*1 | 5-19 a*1"
    assert play.core.in_flight_batches == 2
    assert play.core.in_flight_records == 20


def test_nothing_comes_of_nothing() -> None:
    play = Play()
    assert play.take("a", "") == ""
    assert play.take("a", "0-4", most=0) == ""
    assert play.window == ""


def test_what_is_acquired_is_not_acquired_again() -> None:
    play = Play()
    play.take("a", "0-4")
    assert play.take("b", "0-4") == ""
    assert play.take("b", "0-9", at=0) == "5-9*1"
    assert play.window == "0-4 a*1 | 5-9 b*1"


@pytest.mark.parametrize(
    "log, most, size, acquired",
    [
        ("0-9", 10, 500, "0-9*1"),
        ("0-9 10-19", 10, 500, "0-9*1"),
        ("0-9 10-19", 15, 500, "0-19*1"),  # to the end of the batch that has the last one
        ("0-4 5-9 10-19 20-24", 13, 500, "0-19*1"),
        ("0-4 5-9 10-19", 500, 5, "0-4*1 5-9*1 10-19*1"),
        ("0-4 5-9 10-19", 500, 7, "0-9*1 10-19*1"),
        ("0-1 2-3 4-5 6-7 8-9", 500, 3, "0-3*1 4-7*1 8-9*1"),
        ("0-9", 500, 3, "0-9*1"),  # a batch of the log is never divided
        ("0-4 5-9 10-19", 8, 5, "0-4*1 5-9*1"),
        ("0-4 10-14", 500, 500, "0-14*1"),  # the member will say that there is a gap
        ("0-4", 500, 0, "0-4*1"),
    ],
)
def test_how_much_is_given_at_once(log: str, most: int, size: int, acquired: str) -> None:
    assert Play().take("a", log, most=most, size=size) == acquired


def test_the_start_is_where_the_log_begins_to_have_records() -> None:
    play = Play()
    assert play.take("a", "5-9") == "5-9*1"
    assert play.ends == (5, 9)


def test_the_middle_of_a_batch_is_where_it_begins_after_a_reset() -> None:
    play = Play(start=5)
    assert play.take("a", "0-9") == "5-9*1"
    assert play.window == "5-9 a*1"


def test_batches_before_the_start_are_nobodys() -> None:
    play = Play(start=20)
    assert play.take("a", "0-9 10-19") == ""
    assert play.ends == (20, 20)


def test_what_is_released_is_given_out_before_what_is_new() -> None:
    play = Play()
    play.take("a", "0-9")
    play.take("a", "10-19")
    play.ack("a", "5-6:2 10-19:2")
    assert play.core.next_fetch_offset == 5
    assert play.take("b", "0-9 10-19 20-29") == "5-6*2 10-19*2 20-29*1"
    assert play.core.next_fetch_offset == 30


def test_a_part_of_a_batch_that_was_read_cuts_it() -> None:
    play = Play()
    play.take("a", "0-4 5-9")
    play.ack("a", "0-9:2")
    assert play.take("b", "5-9", at=5) == "5-9*2"
    assert play.window == "0-4 free*1 | 5-9 b*2"


def test_offsets_with_different_counts_are_told_apart() -> None:
    play = Play()
    play.take("a", "0-4")
    play.ack("a", "1:2")
    play.take("a", "0-4")
    play.ack("a", "0-4:2")
    assert play.take("a", "0-4") == "0*2 1*3 2-4*2"


class TestRecordLimit:
    """KIP-1206: not one record more than was asked for."""

    def test_the_rest_of_a_batch_stays_available(self) -> None:
        play = Play()
        assert play.take("a", "0-9", most=3, limited=True) == "0-2*1"
        assert play.window == "0-2 a*1 | 3-9 free*0"
        assert play.core.next_fetch_offset == 3
        assert play.take("b", "0-9", most=3, limited=True) == "3-5*1"
        assert play.take("b", "0-9", most=30, limited=True) == "6-9*1"

    def test_over_several_batches(self) -> None:
        play = Play()
        assert play.take("a", "0-4", most=3, limited=True) == "0-2*1"
        assert play.take("a", "0-9", most=3, limited=True) == "3-4*1 5*1"
        assert play.window == "0-2 a*1 | 3-4 a*1 | 5 a*1 | 6-9 free*0"

    def test_batches_are_not_divided_by_size(self) -> None:
        assert Play().take("a", "0-4 5-9 10-14", most=15, size=5, limited=True) == "0-14*1"

    def test_fewer_than_asked_for(self) -> None:
        assert Play().take("a", "0-4", most=10, limited=True) == "0-4*1"

    def test_members_in_different_modes(self) -> None:
        play = Play()
        log = "10-14 15-29 30-44"
        assert play.take("a", log, most=10) == "10-29*1"
        play.ack("a", "10-14:2 15-20:1 21-22:2 23-28:1")
        assert play.take("b", log, most=2, limited=True) == "10-11*2"
        assert play.core.next_fetch_offset == 12
        assert play.take("c", log, most=10) == "12-14*2 21-22*2 30-44*1"

    def test_a_gap_is_divided_too(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.take("a", "16-35 36-60", most=7, limited=True) == "16-20*1 31-32*1"
        assert play.core.next_fetch_offset == 33
        assert play.take("a", "36-60", at=33, most=500, limited=True) == "36-40*1 51-60*1"


class TestTheWindowIsFull:
    def test_no_more_than_a_batch_too_many(self) -> None:
        play = Play(locks=20)
        play.take("a", "0-9")
        assert play.take("a", "10-14 15-24 25-29 30-31") == "10-24*1"
        assert not play.core.can_acquire
        assert play.take("a", "25-34") == ""

    def test_what_is_released_can_be_acquired_still(self) -> None:
        play = Play(locks=20)
        log = "10-14 15-24 25-29 30-32"
        assert play.take("a", log) == "10-29*1"
        assert not play.core.can_acquire
        play.ack("a", "15-19:2")
        assert play.core.can_acquire
        assert play.take("a", log) == "15-19*2"
        play.ack("a", "29:2")
        assert play.take("a", log) == "29*2"
        assert play.core.next_fetch_offset == 30

    def test_what_is_released_comes_with_nothing_new(self) -> None:
        play = Play(locks=20)
        for log in ("0-4", "5-9", "10-14", "15-24"):
            play.take("a", log)
        play.ack("a", "5-9:2")
        assert play.take("a", "5-9", most=6) == "5-9*2"
        play.ack("a", "20-24:2")
        assert play.take("a", "15-24 25-29") == "20-24*2"

    def test_it_has_room_when_its_beginning_is_done(self) -> None:
        play = Play(locks=10)
        play.take("a", "0-4 5-9")
        assert not play.core.can_acquire
        play.ack("a", "5-9:1")
        assert not play.core.can_acquire
        play.ack("a", "0:1")
        assert play.core.can_acquire

    def test_the_limit_is_what_the_settings_say_now(self) -> None:
        play = Play()
        play.take("a", "0-49")
        play.change_terms(max_record_locks=20)
        assert not play.core.can_acquire
        play.change_terms(max_record_locks=50)
        assert not play.core.can_acquire
        play.change_terms(max_record_locks=51)
        assert play.core.can_acquire


class TestThrottling:
    """Records that were delivered often come in smaller parts, and alone for the last time."""

    def test_batches_before_come_without_them(self) -> None:
        play = Play(start=5, state="15-19:0*2 20-22:4*3 26-30:0*3")
        assert play.take("a", "7-19 20-27", at=5) == "7-14*1 15-19*3 23-25*1"
        assert play.core.next_fetch_offset == 26
        assert play.take("a", "7-19 20-27") == "26-27*4"

    def test_each_failure_halves_what_is_given(self) -> None:
        play = Play(start=15, state="15-34:0*4", limit=7)
        assert play.take("a", "15-34") == "15-24*5"
        play.passes(1000)
        assert play.take("a", "15-34") == "15-19*6"
        play.passes(1000)
        for offset in range(15, 20):
            assert play.take("a", "15-34") == f"{offset}*7"
        assert play.take("a", "15-34") == "20-24*6"
        assert play.take("a", "15-34") == "25-34*5"

    def test_the_last_time_is_alone_among_others(self) -> None:
        play = Play(start=15, state="15-34:0*2")
        play.take("a", "15-34")
        play.ack("a", "17:2 20:2")
        assert play.take("a", "15-34") == "17*4 20*4"
        play.ack("a", "15-34:2")
        assert play.take("a", "15-34") == "15-16*4"
        assert play.take("a", "15-34") == "17*5"
        assert play.take("a", "15-34") == "18-19*4"
        assert play.take("a", "15-34") == "20*5"
        assert play.take("a", "15-34") == "21-30*4"

    def test_what_is_not_given_out_throttles_nobody(self) -> None:
        play = Play(start=15, state="15-19:0*1")
        play.take("a", "15-19")
        play.ack("a", "15:2")
        assert play.take("a", "15-19") == "15*3"
        play.ack("a", "16-19:2")
        assert play.take("a", "15-19") == "16-19*3"

    def test_what_is_being_written_throttles_nobody(self) -> None:
        play = Play(start=15, state="15-19:0*1 20-24:0*2 25-29:0*2 30-34:0*2 35-39:0*2 40-44:4*5 45-49:0*1")
        log = "15-19 20-24 25-29 30-34 35-39 40-44 45-49"
        assert play.take("a", "20-24", at=20) == "20-24*3"
        assert play.take("a", "36-37", at=36) == "36-37*3"
        play.waits = True
        play.ack("a", "20-24:2 36-37:2")
        assert play.take("a", log, most=10) == "15-19*2 25-29*3"
        assert play.take("a", log) == "30-34*3 35*3 38-39*3 45-49*2"

    @pytest.mark.parametrize("limit", [1, 2])
    def test_a_low_limit_throttles_nothing(self, limit: int) -> None:
        play = Play(limit=limit)
        play.take("a", "0-9")
        play.ack("a", "0-9:2")
        assert play.take("a", "0-9", at=0) == ("0-9*2" if limit == 2 else "")


class TestCompaction:
    """What was read once and is not there any more is over."""

    def test_batches_between(self) -> None:
        play = Play()
        for log in ("0-4", "5-9", "10-14"):
            play.take("a", log)
        play.ack("a", "0-14:2")
        assert play.take("b", "10-14 15-19", at=0) == "10-14*2 15-19*1"
        assert play.window == "0-4 gone*1 | 5-9 gone*1 | 10-14 b*2 | 15-19 b*1"
        assert play.core.delivery_complete_count == 10
        assert play.ack("b", "10-14:1") == "0 15 10-14:2*2"
        assert play.ends == (15, 19)

    def test_the_rest_of_a_batch(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.take("a", "10-19")
        play.ack("a", "5-9:2 10-19:2")
        assert play.take("b", "15-19", at=5) == "15-19*2"
        assert play.window == "0-4 a*1 | 5-9 gone*1 | 10-14 gone*1 | 15-19 b*2"

    def test_what_a_member_has_stays_its_own(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.take("a", "5-9")
        play.ack("a", "5-9:2")
        assert play.take("b", "20-29") == "20-29*1"
        assert play.window == "0-4 a*1 | 5-9 gone*1 | 20-29 b*1"

    def test_it_is_over_even_while_it_is_given_back(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "0-4:2 5-9:2")
        assert play.take("b", "10-14", at=0) == "10-14*1"
        assert play.window == "0-4 gone*1 | 5-9 gone*1 | 10-14 b*1"
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.ends == (10, 14)

    def test_it_is_over_even_when_its_lock_ends(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "5-9:2")
        assert play.take("b", "10-14", at=5) == "10-14*1"
        assert play.passes(1000) == "0 5 0-4:0*1 10-14:0*1"
        assert play.window == "0-4 free*1 | 5-9 gone*1 | 10-14 free*1"

    def test_the_rest_of_what_is_being_given_back_is_nobodys_yet(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "0-9:2")
        assert play.take("b", "6-9 10-14", at=0) == "10-14*1"
        assert play.window == "0-5 gone*1 | 6-9 free?*1 | 10-14 b*1"
        play.answer()
        assert play.take("c", "6-9") == "6-9*2"

    def test_if_nobody_gets_anything_the_start_moves_at_once(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.ack("a", "0-9:2")
        play.take("b", "0-9")
        play.ack("b", "0-4:2 5-9:1")
        assert play.window == "0-4 free*2 | 5-9 done*2"
        assert play.take("b", "5-9") == "written 10 0"
        assert play.ends == (10, 10)
