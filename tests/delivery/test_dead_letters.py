"""Dead letters: undeliverable records are copied first and archived afterwards (KIP-1191)."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.delivery.contract import DeadLetter
from konvene.errors import Errors

REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."


def test_rejected_batch() -> None:
    play = Play(dead_letters=True)
    play.acquire("a", "0-4")
    assert play.acknowledge("a", "0-4:3") == "0 0 0-4:3*1"
    assert play.window == "0-4 archiving*1"
    assert play.dead_letters == [DeadLetter(0, 4, 1, REJECTED)]
    assert play.core.next_fetch_offset == 5
    assert play.complete_copy() == "0 5 0-4:4*1"
    assert play.bounds == (5, 5)
    assert play.core.counts.archived == 5


def test_rejected_offsets_of_a_batch() -> None:
    play = Play(dead_letters=True)
    play.acquire("a", "0-9")
    assert (
        play.acknowledge("a", "0-9:1,3,3,1,0,3,2,1,1,1")
        == "0 6 0:2*1 1-2:3*1 3:2*1 4:4*1 5:3*1 6:0*1 7-9:2*1"
    )
    assert play.dead_letters == [DeadLetter(1, 2, 1, REJECTED), DeadLetter(5, 5, 1, REJECTED)]
    assert play.bounds == (1, 9)
    assert play.complete_copy() == "1 7 1-2:4*1"
    assert play.bounds == (5, 9)
    assert play.complete_copy() == "5 4 5:4*1"
    assert play.bounds == (6, 9)


@pytest.mark.parametrize("delivery_end", ["lock", "release", "session"])
def test_delivery_limit(delivery_end: str) -> None:
    play = Play(limit=1, dead_letters=True)
    play.acquire("a", "0-4")
    if delivery_end == "lock":
        written = play.advance_time(1000)
    else:
        written = play.acknowledge("a", "0-4:2") if delivery_end == "release" else play.release("a")
    assert written == "0 0 0-4:3*1"
    assert play.dead_letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]
    assert play.core.counts.archived == 5
    assert play.complete_copy() == "0 5 0-4:4*1"
    assert play.bounds == (5, 5)


def test_group_without_dead_letter_queue_archives_at_once() -> None:
    play = Play()
    play.acquire("a", "0-4")
    assert play.acknowledge("a", "0-4:3") == "0 5 0-4:4*1"
    assert play.dead_letters == []


def test_only_records_at_the_limit_are_dead_letters() -> None:
    play = Play(limit=2, dead_letters=True)
    play.acquire("a", "0-9")
    play.acknowledge("a", "3-4:2")
    play.acquire("a", "0-9")
    assert play.advance_time(1000) == "0 0 0-2:0*1 3-4:3*2 5-9:0*1"
    assert play.dead_letters == [DeadLetter(3, 4, 2, TOO_OFTEN)]


class TestFailedWrite:
    def test_failed_rejection(self) -> None:
        play = Play(dead_letters=True)
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", "0-4:3")
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert play.window == "0-4 a*1"
        assert play.dead_letters == []

    def test_failed_lock_timeout(self) -> None:
        """Records at the delivery limit are copied and archived even if the write failed."""
        play = Play(limit=1, dead_letters=True)
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.advance_time(1000)
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert play.dead_letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]
        play.hold_writes = False
        assert play.complete_copy() == "0 5 0-4:4*1"
        assert play.bounds == (5, 5)

    def test_failed_archiving(self) -> None:
        """Copied records are archived anyway; the next write persists it with the start offset."""
        play = Play(dead_letters=True)
        play.acquire("a", "0-4")
        play.acknowledge("a", "0-4:3")
        play.hold_writes = True
        play.complete_copy()
        play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.bounds == (5, 5)

    def test_failed_rejection_with_expired_lock(self) -> None:
        """Kafka archives these records without a copy, and its complete count is too small."""
        play = Play(limit=1, dead_letters=True)
        play.acquire("a", "0-4")
        play.hold_writes = True
        play.acknowledge("a", "0-4:3")
        play.advance_time(1000)
        assert play.complete_write(Errors.COORDINATOR_NOT_AVAILABLE) == "0 0 0-4:3*1"
        play.complete_write()
        assert play.dead_letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]


class TestRestart:
    def test_pending_copies_are_repeated(self) -> None:
        play = Play(start=0, state="0-2:3*1 3-4:3*5 5-9:0*1", dead_letters=True)
        assert play.dead_letters == [DeadLetter(0, 2, 1, REJECTED), DeadLetter(3, 4, 5, TOO_OFTEN)]
        assert play.bounds == (0, 9)
        assert play.core.next_fetch_offset == 5
        assert play.complete_copy() == "0 3 0-2:4*1"
        assert play.bounds == (3, 9)
        assert play.complete_copy() == "3 2 3-4:4*5"
        assert play.bounds == (5, 9)

    def test_pending_copies_are_repeated_without_a_queue(self) -> None:
        play = Play(start=0, state="0-2:3*1")
        assert play.dead_letters == [DeadLetter(0, 2, 1, REJECTED)]
        assert play.complete_copy() == "0 3 0-2:4*1"
        assert play.bounds == (3, 3)


def test_log_start_moves_during_the_copy() -> None:
    play = Play(dead_letters=True)
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-4:3")
    play.move_log_start(3)
    assert play.complete_copy() == "3 2 3-4:4*1"
    assert play.bounds == (5, 9)
    play.acknowledge("a", "5-9:3")
    play.move_log_start(10)
    assert play.complete_copy() == ""
    assert play.bounds == (10, 10)


def test_records_being_copied_are_unavailable() -> None:
    play = Play(dead_letters=True)
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-4:3 5-9:2")
    assert play.acquire("b", "0-9", fetch_offset=0) == "5-9*2"
    assert play.acknowledge("a", "0-4:1").startswith("INVALID_RECORD_STATE")
    assert play.release("a") == ""
