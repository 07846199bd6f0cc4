"""Expired locks and releases: records become available again, or are archived at the delivery limit."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.delivery.contract import InFlight, RecordState
from konvene.errors import Errors


class TestLocks:
    def test_expired_lock_releases_records(self) -> None:
        play = Play()
        assert play.core.lock_end_ms is None
        play.acquire("a", "0-9")
        assert play.core.lock_end_ms == 1000
        assert play.advance_time(999) == ""
        assert play.advance_time(1) == "0 0 0-9:0*1"
        assert play.window == "0-9 free*1"
        assert play.core.lock_end_ms is None
        assert play.core.counts.lock_timeouts == 10
        assert play.acquire("b", "0-9") == "0-9*2"

    def test_each_acquisition_has_a_lock(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.advance_time(400)
        play.acquire("b", "5-9")
        assert play.advance_time(600) == "0 0 0-4:0*1"
        assert play.core.lock_end_ms == 1400
        assert play.advance_time(400) == "0 0 5-9:0*1"

    def test_several_locks_expire_at_once(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.advance_time(1)
        play.acquire("b", "5-9")
        play.advance_time(1)
        play.acquire("c", "20-29")
        assert play.advance_time(2000) == "0 0 0-9:0*1 20-29:0*1"

    def test_acknowledged_records_stay_acknowledged(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.acknowledge("a", "2-3:1 5:2 7:3")
        assert play.advance_time(1000) == "0 3 0-1:0*1 4:0*1 6:0*1 8-9:0*1"
        assert play.acknowledge("a", "0-1:1").startswith("INVALID_RECORD_STATE")

    def test_acknowledgement_removes_the_lock(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.advance_time(10)
        play.acquire("a", "5-9")
        play.acknowledge("a", "0-4:1")
        assert play.core.lock_end_ms == 1010

    def test_delivery_limit(self) -> None:
        play = Play(limit=2)
        for count in (1, 2):
            assert play.acquire("a", "0-4") == f"0-4*{count}"
            written = play.advance_time(1000)
        assert written == "0 5 0-4:4*2"
        assert play.bounds == (5, 5)
        assert play.core.counts.archived == 5

    def test_records_are_available_before_the_write_completes(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.hold_writes = True
        assert play.advance_time(1000) == "0 0 0-4:0*1"
        assert play.acquire("b", "0-4") == "0-4*2"
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.window == "0-4 b*2"

    def test_reacquired_records_expire_once(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-9:2")
        play.acquire("b", "0-9")
        assert play.advance_time(1000) == "0 0 0-9:0*2"
        assert play.core.counts.lock_timeouts == 10

    def test_changed_lock_duration_applies_to_new_locks(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.change_terms(lock_ms=200)
        play.acquire("b", "5-9")
        assert play.core.lock_end_ms == 200
        assert play.advance_time(200) == "0 0 5-9:0*1"
        assert play.core.lock_end_ms == 1000

    def test_removed_locks_leave_the_heap(self) -> None:
        play = Play()
        for base in range(0, 5000, 5):
            play.acquire("a", f"{base}-{base + 4}")
            play.acknowledge("a", f"{base}-{base + 4}:1")
        assert len(play.core._window.locks._heap) <= 100


class TestRelease:
    def test_release_batch(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        assert play.release("a") == "0 0 0-9:0*1"
        assert play.core.next_fetch_offset == 0
        assert play.core.lock_end_ms is None

    def test_release_without_records(self) -> None:
        play = Play()
        assert play.release("a") == ""
        play.acquire("a", "0-9")
        assert play.release("b") == ""
        play.acknowledge("a", "0-9:2")
        assert play.release("a") == ""

    def test_release_keeps_acknowledged_records(self) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.acquire("a", "5-14")
        play.acknowledge("a", "0-4:2 6-9:1 11:3")
        assert play.release("a") == "0 5 5:0*1 10:0*1 12-14:0*1"

    def test_release_keeps_records_of_others(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.acknowledge("a", "3-4:2")
        play.acquire("b", "0-9")
        assert play.release("b") == "0 0 3-4:0*2"
        assert play.release("a") == "0 0 0-2:0*1 5-9:0*1"

    def test_release_keeps_the_delivery_count(self) -> None:
        play = Play(limit=2)
        play.acquire("a", "0-4")
        play.release("a")
        assert play.acquire("a", "0-4") == "0-4*2"
        assert play.release("a") == "0 5 0-4:4*2"
        assert play.bounds == (5, 5)

    def test_release_archives_records_at_the_limit(self) -> None:
        play = Play(limit=2)
        play.acquire("a", "0-9")
        play.acknowledge("a", "0-4:2")
        play.acquire("a", "0-4")
        assert play.release("a") == "0 5 0-4:4*2 5-9:0*1"
        assert play.window == "5-9 free*1"

    def test_failed_release(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.release("a")
        assert play.window == "0-9 free?*1"
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.window == "0-9 a*1"
        play.hold_writes = False
        assert play.advance_time(1000) == "0 0 0-9:0*1"

    def test_changed_delivery_limit_applies_at_once(self) -> None:
        play = Play(limit=5)
        play.acquire("a", "0-4")
        play.release("a")
        play.acquire("a", "0-4")
        play.change_terms(delivery_count_limit=2)
        assert play.release("a") == "0 5 0-4:4*2"
        play.acquire("a", "5-9")
        play.release("a")
        play.acquire("a", "5-9")
        play.change_terms(delivery_count_limit=3)
        assert play.release("a") == "5 0 5-9:0*2"


class TestLockExpiresDuringAWrite:
    """SH8: either the acknowledgement or the lock timeout takes effect, and the counters are right."""

    @pytest.mark.parametrize("acks", ["0-4:1", "0-4:2", "0-4:3"])
    def test_write_succeeds(self, acks: str) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", acks)
        assert play.advance_time(1000) == ""
        assert play.complete_write() == ""
        assert play.window == ("0-4 free*1" if acks == "0-4:2" else "")
        assert play.core.lock_end_ms is None

    @pytest.mark.parametrize("acks", ["0-4:1", "0-4:2", "0-4:3", "0-4:1,2,3,0,1"])
    def test_write_fails(self, acks: str) -> None:
        play = Play()
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", acks)
        assert play.advance_time(1000) == ""
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == "0 0 0-4:0*1"
        assert play.core.delivery_complete_count == 0
        assert play.core.next_fetch_offset == 0
        assert play.acquire("b", "0-4") == "0-4*2"

    def test_write_fails_at_the_delivery_limit(self) -> None:
        play = Play(limit=1)
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", "0-4:1")
        play.advance_time(1000)
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == "0 5 0-4:4*1"
        play.complete_write()
        assert play.bounds == (5, 5)

    def test_log_start_moves_before_the_lock_expires(self) -> None:
        play = Play()
        play.acquire("a", "0-9")
        play.hold_writes = True
        play.acknowledge("a", "0-9:1")
        play.move_log_start(5)
        play.advance_time(1000)
        assert play.core.delivery_complete_count == 5
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.core.delivery_complete_count == 0
        assert play.window == "5-9 free*1"


def test_in_flight_records_are_described() -> None:
    play = Play(start=0, state="0-1:0*3", dead_letters=True)
    play.now_ms = 50
    play.acquire("a", "5-9")
    play.acknowledge("a", "5:1 6:2 7:3")
    play.hold_writes = True
    play.acknowledge("a", "9:1")
    available, acquired = RecordState.AVAILABLE, RecordState.ACQUIRED
    assert list(play.core.in_flight()) == [
        InFlight(6, 6, available, "", 1, -1, -1),
        InFlight(7, 7, RecordState.ARCHIVING, "", 1, -1, -1),
        InFlight(8, 8, acquired, "a", 1, 50, 1050),
        InFlight(9, 9, RecordState.ACKNOWLEDGED, "", 1, -1, -1),
    ]
