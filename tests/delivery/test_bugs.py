"""Bugs of Kafka's share partitions, by issue number, that konvene does not have."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.delivery.playing import KEY, Play

from konvene.delivery.sessions import FINAL_EPOCH, SessionError, ShareSessions
from konvene.errors import Errors


def test_kafka_17210_full_window_delivers_available_records_and_then_waits() -> None:
    """The fetch was stuck: the loaded state exceeded the limit although no record could be acquired."""
    play = Play(start=0, state="0-4:4*1 5-9:0*1", locks=5)
    assert play.bounds == (5, 9)
    assert play.core.can_acquire, "available records can be acquired from a full window"
    assert play.acquire("a", "5-9 10-14") == "5-9*2"
    assert not play.core.can_acquire
    play.acknowledge("a", "5-9:1")
    assert play.core.can_acquire
    assert play.acquire("a", "10-14") == "10-14*1"


def test_kafka_17396_the_last_request_of_a_session_releases_the_records() -> None:
    sessions, play = ShareSessions(1), Play()
    sessions.fetch(KEY.group_id, "a", 0, [(KEY.topic_id, KEY.partition)])
    play.acquire("a", "0-9")
    assert sessions.fetch(KEY.group_id, "a", FINAL_EPOCH, ()).is_final
    for topic_id, partition in sessions.remove(KEY.group_id, "a"):
        assert (topic_id, partition) == KEY[1:]
        assert play.release("a") == "0 0 0-9:0*1"
    assert play.acquire("b", "0-9") == "0-9*2"


@pytest.mark.parametrize("acks", ["0-9:1", "0-9:2", "0-9:3"])
def test_kafka_19227_acknowledgement_makes_space_for_fetches(acks: str) -> None:
    """A waiting fetch was not woken; `can_acquire` is True as soon as the acknowledgement is written."""
    play = Play(locks=10)
    play.acquire("a", "0-9")
    play.hold_writes = True
    play.acknowledge("a", acks)
    assert not play.core.can_acquire
    play.complete_write()
    assert play.core.can_acquire


def test_kafka_19555_nothing_new_is_acquired_when_the_window_is_full() -> None:
    """A fetch of released records continued behind the end of the window and exceeded the limit."""
    play = Play(locks=30)
    play.acquire("a", "0-9 10-19 20-29")
    play.acknowledge("a", "20:2")
    assert play.acquire("b", "20-29 30-39") == "20*2"
    play.acknowledge("a", "29:2")
    assert play.acquire("b", "20-29 30-39 40-49", fetch_offset=29) == "29*2"
    assert play.core.in_flight_records == 30


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("lock_ends_first", [True, False])
@pytest.mark.parametrize("log_start", [0, 5, 10])
@pytest.mark.parametrize("acks", ["0-9:1", "0-9:2", "0-9:3", "0-4:1 5-9:3"])
def test_kafka_19476_lock_timeout_with_failed_write_and_moved_log_start(
    acks: str, log_start: int, lock_ends_first: bool, written: bool
) -> None:
    """The complete count was wrong afterwards, or records were never delivered again."""
    play = Play()
    play.acquire("a", "0-9")
    play.hold_writes = True
    play.acknowledge("a", acks)
    if lock_ends_first:
        play.advance_time(1000)
    play.move_log_start(log_start)
    if not lock_ends_first:
        play.advance_time(1000)
    play.complete_write(Errors.NONE if written else Errors.COORDINATOR_NOT_AVAILABLE)
    while play.pending_writes:
        play.complete_write()
    if log_start == 10 or (written and acks != "0-9:2"):
        assert play.window == ""
        assert play.bounds == (10, 10)
    else:
        assert play.acquire("b", "0-9") == f"{log_start}-9*2"
    assert play.core.delivery_complete_count == 0


def test_kafka_19456_writes_change_no_epoch() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acknowledge("a", "0-4:1")
    play.release("a")
    play.advance_time(1000)
    play.move_log_start(7)
    assert (play.core.state_epoch, play.core.leader_epoch) == (3, 2)


def test_kafka_19485_a_session_does_not_begin_with_acknowledgements() -> None:
    sessions = ShareSessions(1)
    with pytest.raises(SessionError) as rejected:
        sessions.fetch("g", "a", 0, [(KEY.topic_id, 0)], acknowledges=True)
    assert rejected.value.error is Errors.INVALID_REQUEST


def test_kafka_18494_acquired_records_without_state_are_delivered_again() -> None:
    """After a restart the window has gaps; their records are read again before the start offset moves."""
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "10-19")
    assert play.acknowledge("a", "10-19:1") == "0 10 10-19:2*1"
    play.load(0, "10-19:2*1")
    assert play.core.next_fetch_offset == 0
    assert play.acquire("b", "0-9 10-19 20-29") == "0-9*1 20-29*1"
    play.acknowledge("b", "20-29:1")
    assert play.bounds == (0, 29)
    play.acknowledge("b", "0-9:1")
    assert play.bounds == (30, 30)


def test_kafka_19859_a_late_acknowledgement_does_not_move_the_start_back() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "10-19")
    play.hold_writes = True
    play.acknowledge("a", "0-4:1")
    play.move_log_start(15)
    assert play.bounds == (15, 19)
    play.complete_write()
    assert play.bounds == (15, 19)
    play.hold_writes = False
    assert play.acknowledge("a", "5-16:1") == "15 2 15-16:2*1"
    assert play.bounds == (17, 19)


def test_kafka_19954_no_offset_is_in_two_batches_nor_acquired_before_the_start() -> None:
    play = Play(start=5, state="15-20:4*1")
    assert play.acquire("a", "0-10") == "5-10*1"
    assert play.acquire("a", "11-25") == "11-14*1 21-25*1"
    cells = play.core._window.cells
    assert all(left.last < right.first for left, right in pairwise(cells))
    play.move_log_start(8)
    assert play.acquire("b", "0-10", fetch_offset=5) == ""
    play.acknowledge("a", "8-10:2")
    assert play.acquire("b", "0-10") == "8-10*2"


def test_kafka_19567_new_leader_delivers_records_acquired_at_the_old_one() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.load(0)
    assert play.core.can_acquire
    assert play.core.next_fetch_offset == 0
    assert play.acquire("b", "0-9") == "0-9*1"


def test_kafka_20034_each_write_has_the_complete_count() -> None:
    play = Play()
    play.acquire("a", "0-9")
    play.acquire("a", "10-19")
    assert play.acknowledge("a", "5-6:1") == "0 2 5-6:2*1"
    assert play.acknowledge("a", "12:3") == "0 3 12:4*1"
    assert play.acknowledge("a", "0-4:1") == "0 8 0-4:2*1"
    assert play.bounds == (7, 19)
    assert play.acknowledge("a", "7:2") == "7 1 7:0*1"
    play.load(7, "7:0*1 12:4*1")
    assert play.core.delivery_complete_count == 1


def test_kafka_17541_one_bad_record_does_not_reject_its_batch() -> None:
    """A member that fails on record 13 gets it in smaller and smaller batches; in the end all others are
    accepted."""
    play = Play(limit=5)
    accepted: set[int] = set()
    for _ in range(200):
        acquired = play.acquire("a", "0-99")
        if not acquired:
            break
        offsets = {
            offset
            for part in acquired.split()
            for first, _, last in [part.partition("*")[0].partition("-")]
            for offset in range(int(first), int(last or first) + 1)
        }
        if 13 in offsets:
            play.release("a")
            continue
        accepted |= offsets
        for offset in sorted(offsets):
            play.acknowledge("a", f"{offset}:1")
    assert accepted == set(range(100)) - {13}
    assert play.bounds == (100, 100)
    assert play.core.counts.archived == 1


def test_kafka_20458_renewed_record_is_not_delivered_again() -> None:
    """A renewed record was delivered again. Its owner keeps it and does not receive it twice; other records
    stay available."""
    play = Play(lock_ms=1000)
    play.acquire("a", "0-9")
    assert not play.acknowledge("a", "0-9:4")
    for member in ("a", "b"):
        assert not play.acquire(member, "0-9", fetch_offset=0)
    assert play.acquire("b", "10-19") == "10-19*1"
    play.acknowledge("a", "0-4:1")
    play.acknowledge("a", "5-9:2")
    assert play.acquire("b", "0-9", fetch_offset=5) == "5-9*2"
