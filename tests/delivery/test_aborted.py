"""A group that reads what is committed never gets a record of an aborted transaction."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play, headers

from konvene.delivery.aborted import aborted_ranges, split_aborted
from konvene.delivery.contract import Acquired


@pytest.mark.parametrize(
    "log, aborted, ranges",
    [
        ("0-4@1 5@1!", [(1, 0)], [(0, 4)]),
        ("0-4@1 5@1!", [], []),
        ("0-4 5-9@1 10@1!", [(1, 5)], [(5, 9)]),
        # committed first, aborted then, by the same producer
        ("0-4@1 5@1! 6-9@1 10@1!", [(1, 6)], [(6, 9)]),
        # aborted first, committed then
        ("0-4@1 5@1! 6-9@1 10@1!", [(1, 0)], [(0, 4)]),
        # two producers at the same time
        ("0-1@1 2-3@2 4-5@1 6@2! 7@1!", [(1, 0)], [(0, 1), (4, 5)]),
        ("0-1@1 2-3@2 4-5@1 6@2! 7@1!", [(2, 2), (1, 0)], [(0, 1), (2, 3), (4, 5)]),
        # it began before what was read
        ("5-9@1 10@1! 11-14@1", [(1, 0)], [(5, 9)]),
        # twice
        ("0@1 1@1! 2@1 3@1!", [(1, 0), (1, 2)], [(0, 0), (2, 2)]),
    ],
)
def test_which_batches_are_aborted(log: str, aborted: list[tuple[int, int]], ranges: object) -> None:
    assert aborted_ranges(headers(log), aborted) == ranges


@pytest.mark.parametrize(
    "acquired, ranges, kept, dropped",
    [
        ([(0, 9)], [], [(0, 9)], []),
        ([(0, 9)], [(0, 9)], [], [(0, 9)]),
        ([(0, 9)], [(3, 5)], [(0, 2), (6, 9)], [(3, 5)]),
        ([(0, 9)], [(0, 2), (5, 6)], [(3, 4), (7, 9)], [(0, 2), (5, 6)]),
        ([(0, 4), (5, 9)], [(3, 6)], [(0, 2), (7, 9)], [(3, 4), (5, 6)]),
        ([(0, 4), (10, 14)], [(5, 9)], [(0, 4), (10, 14)], []),
        ([(0, 4), (10, 14), (20, 24)], [(8, 30)], [(0, 4)], [(10, 14), (20, 24)]),
        ([(5, 9)], [(0, 4), (9, 9), (12, 15)], [(5, 8)], [(9, 9)]),
    ],
)
def test_what_is_left(acquired: object, ranges: object, kept: object, dropped: object) -> None:
    records = [Acquired(first, last, 2) for first, last in acquired]  # type: ignore[attr-defined]
    left, away = split_aborted(records, ranges)  # type: ignore[arg-type]
    assert [(first, last) for first, last, _ in left] == kept
    assert {count for *_, count in left} <= {2}
    assert away == dropped


def test_they_are_archived_when_they_are_read() -> None:
    play = Play(read_committed=True)
    log = "0-4 5-9@1 10@1! 11-14"
    assert play.take("a", log, aborted=[(1, 5)]) == "0-4*1 10-14*1"
    assert play.window == "0-4 a*1 | 5-9 gone*1 | 10-14 a*1"
    assert play.core.delivery_complete_count == 5
    assert play.core.counts.delivered == 10
    assert play.ack("a", "0-4:1 10-14:0,1,1,1,1") == "0 15 0-4:2*1 10:4*1 11-14:2*1"
    assert play.ends == (15, 15)


def test_their_locks_are_off() -> None:
    play = Play(read_committed=True)
    play.take("a", "0-4@1 5@1!", aborted=[(1, 0)])
    assert play.passes(1000) == "0 5 5:0*1"
    assert play.core.next_fetch_offset == 5


def test_a_member_cannot_speak_of_them() -> None:
    play = Play(read_committed=True)
    play.take("a", "0-4@1 5@1! 6-9", aborted=[(1, 0)])
    assert play.ack("a", "0-9:1").startswith("INVALID_RECORD_STATE")
    assert play.ack("a", "5-9:1") == "0 10 5-9:2*1"


def test_what_was_written_before_a_restart_is_filtered_again() -> None:
    play = Play(start=0, state="10-14:2*1", read_committed=True)
    assert play.take("a", "0-4@1 5@1! 6-9 10-14", aborted=[(1, 0)]) == "5-9*1"


def test_a_window_full_of_them_does_not_stop_the_group() -> None:
    """Nobody acknowledges them, so nothing would ever move the start: it moves when they are read, and that
    is written, for an operator to see that nothing is left to be read. Kafka's window stays full."""
    play = Play(locks=10, read_committed=True)
    assert play.take("a", "0-4@1 5-9@1", aborted=[(1, 0)]) == "written 10 0"
    assert play.core.can_acquire
    assert play.take("a", "10-14@1 15@1! 16", aborted=[(1, 0)]) == "15-16*1"
