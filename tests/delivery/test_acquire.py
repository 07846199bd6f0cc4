"""Acquiring records from read batches, in the cases of Kafka's `SharePartitionTest`."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.errors import Errors


def test_batch_is_acquired_whole() -> None:
    play = Play()
    assert play.acquire("a", "0-4") == "0-4*1"
    assert (play.core.next_fetch_offset, play.bounds) == (5, (0, 4))
    assert play.acquire("a", "5-9 10-19") == "5-19*1"
    assert play.window == "0-4 a*1 | 5-19 a*1"
    assert play.core.in_flight_batches == 2
    assert play.core.in_flight_records == 20


def test_empty_read_acquires_nothing() -> None:
    play = Play()
    assert play.acquire("a", "") == ""
    assert play.acquire("a", "0-4", max_records=0) == ""
    assert play.window == ""


def test_acquired_records_are_not_acquired_again() -> None:
    play = Play()
    play.acquire("a", "0-4")
    assert play.acquire("b", "0-4") == ""
    assert play.acquire("b", "0-9", fetch_offset=0) == "5-9*1"
    assert play.window == "0-4 a*1 | 5-9 b*1"


@pytest.mark.parametrize(
    "log, max_records, batch_size, acquired",
    [
        ("0-9", 10, 500, "0-9*1"),
        ("0-9 10-19", 10, 500, "0-9*1"),
        ("0-9 10-19", 15, 500, "0-19*1"),  # to the end of the batch with the last record
        ("0-4 5-9 10-19 20-24", 13, 500, "0-19*1"),
        ("0-4 5-9 10-19", 500, 5, "0-4*1 5-9*1 10-19*1"),
        ("0-4 5-9 10-19", 500, 7, "0-9*1 10-19*1"),
        ("0-1 2-3 4-5 6-7 8-9", 500, 3, "0-3*1 4-7*1 8-9*1"),
        ("0-9", 500, 3, "0-9*1"),  # a batch of the log is never divided
        ("0-4 5-9 10-19", 8, 5, "0-4*1 5-9*1"),
        ("0-4 10-14", 500, 500, "0-14*1"),  # the member acknowledges the gap later
        ("0-4", 500, 0, "0-4*1"),
    ],
)
def test_acquired_amount(log: str, max_records: int, batch_size: int, acquired: str) -> None:
    assert Play().acquire("a", log, max_records=max_records, batch_size=batch_size) == acquired


def test_start_moves_to_the_first_record() -> None:
    play = Play()
    assert play.acquire("a", "5-9") == "5-9*1"
    assert play.bounds == (5, 9)


def test_start_in_the_middle_of_a_batch() -> None:
    play = Play(start=5)
    assert play.acquire("a", "0-9") == "5-9*1"
    assert play.window == "5-9 a*1"


def test_batches_before_the_start_are_ignored() -> None:
    play = Play(start=20)
    assert play.acquire("a", "0-9 10-19") == ""
    assert play.bounds == (20, 20)


def test_released_records_come_before_new_ones() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "10-19")
    play.acknowledge("a", "5-6:2 10-19:2")
    assert play.core.next_fetch_offset == 5
    assert play.acquire("b", "0-9 10-19 20-29") == "5-6*2 10-19*2 20-29*1"
    assert play.core.next_fetch_offset == 30


def test_partial_read_splits_a_cell() -> None:
    play = Play()
    play.acquire("a", "0-4 5-9")
    play.acknowledge("a", "0-9:2")
    assert play.acquire("b", "5-9", fetch_offset=5) == "5-9*2"
    assert play.window == "0-4 free*1 | 5-9 b*2"


def test_offsets_with_different_counts_are_separate() -> None:
    play = Play()
    play.acquire("a", "0-4")
    play.acknowledge("a", "1:2")
    play.acquire("a", "0-4")
    play.acknowledge("a", "0-4:2")
    assert play.acquire("a", "0-4") == "0*2 1*3 2-4*2"


class TestRecordLimit:
    """KIP-1206: never more records than the limit."""

    def test_rest_of_a_batch_stays_available(self) -> None:
        play = Play()
        assert play.acquire("a", "0-9", max_records=3, record_limit=True) == "0-2*1"
        assert play.window == "0-2 a*1 | 3-9 free*0"
        assert play.core.next_fetch_offset == 3
        assert play.acquire("b", "0-9", max_records=3, record_limit=True) == "3-5*1"
        assert play.acquire("b", "0-9", max_records=30, record_limit=True) == "6-9*1"

    def test_over_several_batches(self) -> None:
        play = Play()
        assert play.acquire("a", "0-4", max_records=3, record_limit=True) == "0-2*1"
        assert play.acquire("a", "0-9", max_records=3, record_limit=True) == "3-4*1 5*1"
        assert play.window == "0-2 a*1 | 3-4 a*1 | 5 a*1 | 6-9 free*0"

    def test_batches_are_not_divided_by_size(self) -> None:
        assert (
            Play().acquire("a", "0-4 5-9 10-14", max_records=15, batch_size=5, record_limit=True) == "0-14*1"
        )

    def test_fewer_records_than_the_limit(self) -> None:
        assert Play().acquire("a", "0-4", max_records=10, record_limit=True) == "0-4*1"

    def test_members_in_different_modes(self) -> None:
        play = Play()
        log = "10-14 15-29 30-44"
        assert play.acquire("a", log, max_records=10) == "10-29*1"
        play.acknowledge("a", "10-14:2 15-20:1 21-22:2 23-28:1")
        assert play.acquire("b", log, max_records=2, record_limit=True) == "10-11*2"
        assert play.core.next_fetch_offset == 12
        assert play.acquire("c", log, max_records=10) == "12-14*2 21-22*2 30-44*1"

    def test_limit_applies_to_gaps(self) -> None:
        play = Play(start=11, state="21-30:2*2 41-50:4*1")
        assert play.acquire("a", "16-35 36-60", max_records=7, record_limit=True) == "16-20*1 31-32*1"
        assert play.core.next_fetch_offset == 33
        assert (
            play.acquire("a", "36-60", fetch_offset=33, max_records=500, record_limit=True)
            == "36-40*1 51-60*1"
        )


class TestFullWindow:
    def test_limit_is_exceeded_by_one_batch_at_most(self) -> None:
        play = Play(locks=20)
        play.acquire("a", "0-9")
        assert play.acquire("a", "10-14 15-24 25-29 30-31") == "10-24*1"
        assert not play.core.can_acquire
        assert play.acquire("a", "25-34") == ""

    def test_released_records_can_be_acquired(self) -> None:
        play = Play(locks=20)
        log = "10-14 15-24 25-29 30-32"
        assert play.acquire("a", log) == "10-29*1"
        assert not play.core.can_acquire
        play.acknowledge("a", "15-19:2")
        assert play.core.can_acquire
        assert play.acquire("a", log) == "15-19*2"
        play.acknowledge("a", "29:2")
        assert play.acquire("a", log) == "29*2"
        assert play.core.next_fetch_offset == 30

    def test_released_records_come_without_new_ones(self) -> None:
        play = Play(locks=20)
        for log in ("0-4", "5-9", "10-14", "15-24"):
            play.acquire("a", log)
        play.acknowledge("a", "5-9:2")
        assert play.acquire("a", "5-9", max_records=6) == "5-9*2"
        play.acknowledge("a", "20-24:2")
        assert play.acquire("a", "15-24 25-29") == "20-24*2"

    def test_start_that_moves_makes_space(self) -> None:
        play = Play(locks=10)
        play.acquire("a", "0-4 5-9")
        assert not play.core.can_acquire
        play.acknowledge("a", "5-9:1")
        assert not play.core.can_acquire
        play.acknowledge("a", "0:1")
        assert play.core.can_acquire

    def test_changed_limit_applies_at_once(self) -> None:
        play = Play()
        play.acquire("a", "0-49")
        play.change_terms(max_record_locks=20)
        assert not play.core.can_acquire
        play.change_terms(max_record_locks=50)
        assert not play.core.can_acquire
        play.change_terms(max_record_locks=51)
        assert play.core.can_acquire


class TestThrottling:
    """Records that failed often are delivered in smaller batches, and alone in the last delivery."""

    def test_batches_before_throttled_ones_come_alone(self) -> None:
        play = Play(start=5, state="15-19:0*2 20-22:4*3 26-30:0*3")
        assert play.acquire("a", "7-19 20-27", fetch_offset=5) == "7-14*1 15-19*3 23-25*1"
        assert play.core.next_fetch_offset == 26
        assert play.acquire("a", "7-19 20-27") == "26-27*4"

    def test_each_failure_halves_the_batch(self) -> None:
        play = Play(start=15, state="15-34:0*4", limit=7)
        assert play.acquire("a", "15-34") == "15-24*5"
        play.advance_time(1000)
        assert play.acquire("a", "15-34") == "15-19*6"
        play.advance_time(1000)
        for offset in range(15, 20):
            assert play.acquire("a", "15-34") == f"{offset}*7"
        assert play.acquire("a", "15-34") == "20-24*6"
        assert play.acquire("a", "15-34") == "25-34*5"

    def test_last_delivery_comes_alone(self) -> None:
        play = Play(start=15, state="15-34:0*2")
        play.acquire("a", "15-34")
        play.acknowledge("a", "17:2 20:2")
        assert play.acquire("a", "15-34") == "17*4 20*4"
        play.acknowledge("a", "15-34:2")
        assert play.acquire("a", "15-34") == "15-16*4"
        assert play.acquire("a", "15-34") == "17*5"
        assert play.acquire("a", "15-34") == "18-19*4"
        assert play.acquire("a", "15-34") == "20*5"
        assert play.acquire("a", "15-34") == "21-30*4"

    def test_acquired_records_throttle_no_others(self) -> None:
        play = Play(start=15, state="15-19:0*1")
        play.acquire("a", "15-19")
        play.acknowledge("a", "15:2")
        assert play.acquire("a", "15-19") == "15*3"
        play.acknowledge("a", "16-19:2")
        assert play.acquire("a", "15-19") == "16-19*3"

    def test_records_with_pending_writes_throttle_no_others(self) -> None:
        play = Play(start=15, state="15-19:0*1 20-24:0*2 25-29:0*2 30-34:0*2 35-39:0*2 40-44:4*5 45-49:0*1")
        log = "15-19 20-24 25-29 30-34 35-39 40-44 45-49"
        assert play.acquire("a", "20-24", fetch_offset=20) == "20-24*3"
        assert play.acquire("a", "36-37", fetch_offset=36) == "36-37*3"
        play.hold_writes = True
        play.acknowledge("a", "20-24:2 36-37:2")
        assert play.acquire("a", log, max_records=10) == "15-19*2 25-29*3"
        assert play.acquire("a", log) == "30-34*3 35*3 38-39*3 45-49*2"

    @pytest.mark.parametrize("limit", [1, 2])
    def test_low_limit_throttles_nothing(self, limit: int) -> None:
        play = Play(limit=limit)
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-9:2")
        assert play.acquire("a", "0-9", fetch_offset=0) == ("0-9*2" if limit == 2 else "")


class TestCompaction:
    """Records that compaction removed from the log are archived."""

    def test_compacted_batches_are_archived(self) -> None:
        play = Play()
        for log in ("0-4", "5-9", "10-14"):
            play.acquire("a", log)
        play.acknowledge("a", "0-14:2")
        assert play.acquire("b", "10-14 15-19", fetch_offset=0) == "10-14*2 15-19*1"
        assert play.window == "0-4 archived*1 | 5-9 archived*1 | 10-14 b*2 | 15-19 b*1"
        assert play.core.delivery_complete_count == 10
        assert play.acknowledge("b", "10-14:1") == "0 15 10-14:2*2"
        assert play.bounds == (15, 19)

    def test_compacted_rest_of_a_batch_is_archived(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.acquire("a", "10-19")
        play.acknowledge("a", "5-9:2 10-19:2")
        assert play.acquire("b", "15-19", fetch_offset=5) == "15-19*2"
        assert play.window == "0-4 a*1 | 5-9 archived*1 | 10-14 archived*1 | 15-19 b*2"

    def test_acquired_records_stay_acquired(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.acquire("a", "5-9")
        play.acknowledge("a", "5-9:2")
        assert play.acquire("b", "20-29") == "20-29*1"
        assert play.window == "0-4 a*1 | 5-9 archived*1 | 20-29 b*1"

    def test_compacted_records_with_a_pending_release_are_archived(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "0-4:2 5-9:2")
        assert play.acquire("b", "10-14", fetch_offset=0) == "10-14*1"
        assert play.window == "0-4 archived*1 | 5-9 archived*1 | 10-14 b*1"
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.bounds == (10, 14)

    def test_lock_timeout_keeps_compacted_records_archived(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "5-9:2")
        assert play.acquire("b", "10-14", fetch_offset=5) == "10-14*1"
        assert play.advance_time(1000) == "0 5 0-4:0*1 10-14:0*1"
        assert play.window == "0-4 free*1 | 5-9 archived*1 | 10-14 free*1"

    def test_rest_with_a_pending_release_stays_unavailable(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "0-9:2")
        assert play.acquire("b", "6-9 10-14", fetch_offset=0) == "10-14*1"
        assert play.window == "0-5 archived*1 | 6-9 free?*1 | 10-14 b*1"
        play.complete_write()
        assert play.acquire("c", "6-9") == "6-9*2"

    def test_start_moves_at_once_if_no_record_is_acquired(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-9:2")
        play.acquire("b", "0-9")
        play.acknowledge("b", "0-4:2 5-9:1")
        assert play.window == "0-4 free*2 | 5-9 done*2"
        assert play.acquire("b", "5-9") == "written 10 0"
        assert play.bounds == (10, 10)
