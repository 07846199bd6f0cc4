"""The log loses its beginning while records of it are in flight."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_nothing_is_in_flight() -> None:
    play = Play()
    play.log_begins(10)
    assert play.ends == (10, 10)
    assert play.core.next_fetch_offset == 10


def test_it_never_moves_back() -> None:
    play = Play(start=10)
    play.log_begins(5)
    play.log_begins(10)
    assert play.ends == (10, 10)


@pytest.mark.parametrize("offset", [7, 9, 12, 15, 18])
def test_what_is_left_is_as_it_was(offset: int) -> None:
    play = Play(start=2)
    play.take("a", "2-6")
    play.take("a", "7-11")
    play.take("b", "12-16")
    play.ack("a", "2-6:2 9:1")
    play.log_begins(offset)
    windows = {
        7: "7-8 a*1 | 9 done*1 | 10-11 a*1 | 12-16 b*1",
        9: "10-11 a*1 | 12-16 b*1",
        12: "12-16 b*1",
        15: "15-16 b*1",
        18: "",
    }
    assert play.window == windows[offset]
    assert play.ends == (10 if offset == 9 else offset, max(16, offset))
    assert play.core.next_fetch_offset == max(17, offset)
    assert play.core.delivery_complete_count == (1 if offset == 7 else 0)


def test_what_was_available_before_it_is_not_fetched() -> None:
    play = Play()
    play.take("a", "0-9")
    play.ack("a", "0-9:2")
    play.log_begins(4)
    assert play.core.next_fetch_offset == 4
    assert play.take("b", "0-9") == "4-9*2"


def test_all_that_was_available_is_gone() -> None:
    play = Play()
    play.take("a", "0-4 5-9")
    play.ack("a", "0-9:2")
    play.log_begins(10)
    assert play.core.next_fetch_offset == 10
    assert play.take("b", "10-14") == "10-14*1"


def test_a_member_may_say_what_it_wants_of_what_is_gone() -> None:
    play = Play()
    play.take("a", "0-9")
    play.take("a", "10-19")
    play.log_begins(5)
    assert play.ack("a", "0-4:1") == ""
    assert play.ack("b", "0-3:3") == ""
    assert play.ack("a", "0-9:1") == "5 5 5-9:2*1"
    play.log_begins(15)
    assert play.ack("a", "8-16:1") == "15 2 15-16:2*1"
    assert play.ack("a", "14-19:1,1,1,2,1,1") == "17 2 17:0*1 18-19:2*1"


def test_gaps_that_members_told_of() -> None:
    play = Play(start=5)
    play.take("a", "5-6")
    play.take("a", "10-18")
    play.ack("a", "5-6:2 10-18:2,2,2,2,2,0,0,0,2")
    play.log_begins(18)
    assert (play.core.next_fetch_offset, play.ends) == (18, (18, 18))
    assert play.window == "18 free*1"


def test_locks_of_what_is_gone_are_gone() -> None:
    play = Play()
    play.take("a", "0-9")
    play.log_begins(10)
    assert play.core.lock_end_ms is None
    assert play.passes(2000) == ""
    assert play.release("a") == ""
    play = Play()
    play.take("a", "0-9")
    play.log_begins(5)
    assert play.passes(1000) == "5 0 5-9:0*1"


def test_a_window_of_which_only_what_is_done_is_left_is_over() -> None:
    """It was full, and nobody had anything in it: nothing would ever have happened to it again."""
    play = Play(locks=10)
    play.take("a", "0-9")
    play.ack("a", "5-9:1")
    assert not play.core.can_acquire
    assert play.log_begins(5) == "10 0"
    assert play.ends == (10, 10)
    assert play.core.can_acquire


def test_the_start_is_written_where_nobody_has_anything_to_acknowledge() -> None:
    play = Play()
    assert play.log_begins(2) == ""
    play.take("a", "2-9")
    assert play.log_begins(5) == ""
    assert play.ack("a", "5-7:2 8-9:1") == "5 2 5-7:0*1 8-9:2*1"
    assert play.log_begins(6) == "6 2"


def test_the_start_moves_over_what_is_done() -> None:
    play = Play()
    play.take("a", "0-4")
    play.ack("a", "1:1 3:1")
    play.log_begins(3)
    assert play.ends == (4, 4)
    assert play.passes(1000) == "4 0 4:0*1"


class TestWhileSomethingIsWritten:
    def test_it_fails(self) -> None:
        play = Play(start=2)
        play.take("a", "2-6")
        play.take("a", "7-11")
        play.waits = True
        play.ack("a", "2-6:2")
        play.ack("a", "7-11:1")
        assert play.core.delivery_complete_count == 5
        play.log_begins(7)
        assert (play.core.next_fetch_offset, play.ends) == (12, (7, 11))
        assert play.core.delivery_complete_count == 5
        play.answer(Errors.GROUP_ID_NOT_FOUND)
        assert play.window == "7-11 done?*1"
        play.answer(Errors.GROUP_ID_NOT_FOUND)
        assert play.window == "7-11 a*1"
        assert play.core.delivery_complete_count == 0

    def test_it_succeeds(self) -> None:
        play = Play(start=2)
        play.take("a", "2-6")
        play.take("a", "7-11")
        play.waits = True
        play.ack("a", "2-6:1")
        play.ack("a", "7-11:2")
        play.log_begins(9)
        play.answer()
        play.answer()
        assert play.window == "9-11 free*1"
        assert play.core.next_fetch_offset == 9

    def test_all_of_it_is_gone(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "0-9:1")
        play.log_begins(20)
        assert play.core.delivery_complete_count == 0
        play.answer()
        assert play.ends == (20, 20)
        assert play.core.next_fetch_offset == 20
