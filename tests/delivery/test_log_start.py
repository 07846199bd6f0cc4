"""The log start moves while records are in flight."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_empty_window() -> None:
    play = Play()
    play.move_log_start(10)
    assert play.bounds == (10, 10)
    assert play.core.next_fetch_offset == 10


def test_log_start_never_moves_back() -> None:
    play = Play(start=10)
    play.move_log_start(5)
    play.move_log_start(10)
    assert play.bounds == (10, 10)


@pytest.mark.parametrize("offset", [7, 9, 12, 15, 18])
def test_remaining_records_are_unchanged(offset: int) -> None:
    play = Play(start=2)
    play.acquire("a", "2-6")
    play.acquire("a", "7-11")
    play.acquire("b", "12-16")
    play.acknowledge("a", "2-6:2 9:1")
    play.move_log_start(offset)
    windows = {
        7: "7-8 a*1 | 9 done*1 | 10-11 a*1 | 12-16 b*1",
        9: "10-11 a*1 | 12-16 b*1",
        12: "12-16 b*1",
        15: "15-16 b*1",
        18: "",
    }
    assert play.window == windows[offset]
    assert play.bounds == (10 if offset == 9 else offset, max(16, offset))
    assert play.core.next_fetch_offset == max(17, offset)
    assert play.core.delivery_complete_count == (1 if offset == 7 else 0)


def test_available_records_below_the_log_start_are_not_fetched() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-9:2")
    play.move_log_start(4)
    assert play.core.next_fetch_offset == 4
    assert play.acquire("b", "0-9") == "4-9*2"


def test_all_available_records_are_deleted() -> None:
    play = Play()
    play.acquire("a", "0-4 5-9")
    play.acknowledge("a", "0-9:2")
    play.move_log_start(10)
    assert play.core.next_fetch_offset == 10
    assert play.acquire("b", "10-14") == "10-14*1"


def test_acknowledgements_of_deleted_records_are_ignored() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "10-19")
    play.move_log_start(5)
    assert play.acknowledge("a", "0-4:1") == ""
    assert play.acknowledge("b", "0-3:3") == ""
    assert play.acknowledge("a", "0-9:1") == "5 5 5-9:2*1"
    play.move_log_start(15)
    assert play.acknowledge("a", "8-16:1") == "15 2 15-16:2*1"
    assert play.acknowledge("a", "14-19:1,1,1,2,1,1") == "17 2 17:0*1 18-19:2*1"


def test_acknowledged_gaps() -> None:
    play = Play(start=5)
    play.acquire("a", "5-6")
    play.acquire("a", "10-18")
    play.acknowledge("a", "5-6:2 10-18:2,2,2,2,2,0,0,0,2")
    play.move_log_start(18)
    assert (play.core.next_fetch_offset, play.bounds) == (18, (18, 18))
    assert play.window == "18 free*1"


def test_deleted_records_have_no_locks() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.move_log_start(10)
    assert play.core.lock_end_ms is None
    assert play.advance_time(2000) == ""
    assert play.release("a") == ""
    play = Play()
    play.acquire("a", "0-9")
    play.move_log_start(5)
    assert play.advance_time(1000) == "5 0 5-9:0*1"


def test_window_of_completed_records_is_emptied() -> None:
    """The window was full without any acquired record, so no event would have changed it again."""
    play = Play(locks=10)
    play.acquire("a", "0-9")
    play.acknowledge("a", "5-9:1")
    assert not play.core.can_acquire
    assert play.move_log_start(5) == "10 0"
    assert play.bounds == (10, 10)
    assert play.core.can_acquire


def test_start_is_written_if_no_acknowledgement_is_expected() -> None:
    play = Play()
    assert play.move_log_start(2) == ""
    play.acquire("a", "2-9")
    assert play.move_log_start(5) == ""
    assert play.acknowledge("a", "5-7:2 8-9:1") == "5 2 5-7:0*1 8-9:2*1"
    assert play.move_log_start(6) == "6 2"


def test_start_moves_over_completed_records() -> None:
    play = Play()
    play.acquire("a", "0-4")
    play.acknowledge("a", "1:1 3:1")
    play.move_log_start(3)
    assert play.bounds == (4, 4)
    assert play.advance_time(1000) == "4 0 4:0*1"


class TestDuringAWrite:
    def test_write_fails(self) -> None:
        play = Play(start=2)
        play.acquire("a", "2-6")
        play.acquire("a", "7-11")
        play.hold_writes = True
        play.acknowledge("a", "2-6:2")
        play.acknowledge("a", "7-11:1")
        assert play.core.delivery_complete_count == 5
        play.move_log_start(7)
        assert (play.core.next_fetch_offset, play.bounds) == (12, (7, 11))
        assert play.core.delivery_complete_count == 5
        play.complete_write(Errors.GROUP_ID_NOT_FOUND)
        assert play.window == "7-11 done?*1"
        play.complete_write(Errors.GROUP_ID_NOT_FOUND)
        assert play.window == "7-11 a*1"
        assert play.core.delivery_complete_count == 0

    def test_write_succeeds(self) -> None:
        play = Play(start=2)
        play.acquire("a", "2-6")
        play.acquire("a", "7-11")
        play.hold_writes = True
        play.acknowledge("a", "2-6:1")
        play.acknowledge("a", "7-11:2")
        play.move_log_start(9)
        play.complete_write()
        play.complete_write()
        assert play.window == "9-11 free*1"
        assert play.core.next_fetch_offset == 9

    def test_all_records_of_the_write_are_deleted(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "0-9:1")
        play.move_log_start(20)
        assert play.core.delivery_complete_count == 0
        play.complete_write()
        assert play.bounds == (20, 20)
        assert play.core.next_fetch_offset == 20
