"""Share groups with `read_committed` never get records of aborted transactions."""

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
        # the transaction began before the first batch read
        ("5-9@1 10@1! 11-14@1", [(1, 0)], [(5, 9)]),
        # two aborted transactions
        ("0@1 1@1! 2@1 3@1!", [(1, 0), (1, 2)], [(0, 0), (2, 2)]),
    ],
)
def test_aborted_ranges(log: str, aborted: list[tuple[int, int]], ranges: object) -> None:
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
def test_split_of_acquired_records(acquired: object, ranges: object, kept: object, dropped: object) -> None:
    records = [Acquired(first, last, 2) for first, last in acquired]  # type: ignore[attr-defined]
    remaining, removed = split_aborted(records, ranges)  # type: ignore[arg-type]
    assert [(first, last) for first, last, _ in remaining] == kept
    assert {count for *_, count in remaining} <= {2}
    assert removed == dropped


def test_aborted_records_are_archived_when_read() -> None:
    play = Play(read_committed=True)
    log = "0-4 5-9@1 10@1! 11-14"
    assert play.acquire("a", log, aborted=[(1, 5)]) == "0-4*1 10-14*1"
    assert play.window == "0-4 a*1 | 5-9 archived*1 | 10-14 a*1"
    assert play.core.delivery_complete_count == 5
    assert play.core.counts.delivered == 10
    assert play.acknowledge("a", "0-4:1 10-14:0,1,1,1,1") == "0 15 0-4:2*1 10:4*1 11-14:2*1"
    assert play.bounds == (15, 15)


def test_aborted_records_have_no_locks() -> None:
    play = Play(read_committed=True)
    play.acquire("a", "0-4@1 5@1!", aborted=[(1, 0)])
    assert play.advance_time(1000) == "0 5 5:0*1"
    assert play.core.next_fetch_offset == 5


def test_aborted_records_cannot_be_acknowledged() -> None:
    play = Play(read_committed=True)
    play.acquire("a", "0-4@1 5@1! 6-9", aborted=[(1, 0)])
    assert play.acknowledge("a", "0-9:1").startswith("INVALID_RECORD_STATE")
    assert play.acknowledge("a", "5-9:1") == "0 10 5-9:2*1"


def test_aborted_records_are_filtered_after_a_restart() -> None:
    play = Play(start=0, state="10-14:2*1", read_committed=True)
    assert play.acquire("a", "0-4@1 5@1! 6-9 10-14", aborted=[(1, 0)]) == "5-9*1"


def test_window_of_aborted_records_does_not_block_the_group() -> None:
    """No member acknowledges aborted records, so the start offset moves when they are read. The new start is
    written, so that an operator sees that no lag is left. Kafka's window stays full."""
    play = Play(locks=10, read_committed=True)
    assert play.acquire("a", "0-4@1 5-9@1", aborted=[(1, 0)]) == "written 10 0"
    assert play.core.can_acquire
    assert play.acquire("a", "10-14@1 15@1! 16", aborted=[(1, 0)]) == "15-16*1"
