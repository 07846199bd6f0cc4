"""Mistakes that were made in share partitions elsewhere, by the number of the report; they are not here."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.delivery.playing import KEY, Play

from konvene.delivery.sessions import FINAL_EPOCH, SessionError, ShareSessions
from konvene.errors import Errors


def test_kafka_17210_a_full_window_without_anything_available_waits_and_then_goes_on() -> None:
    """The fetch was stuck, and the limit was passed by a state of which nothing could be acquired."""
    play = Play(start=0, state="0-4:4*1 5-9:0*1", locks=5)
    assert play.ends == (5, 9)
    assert play.core.can_acquire, "what is available can be had though the window is full"
    assert play.take("a", "5-9 10-14") == "5-9*2"
    assert not play.core.can_acquire
    play.ack("a", "5-9:1")
    assert play.core.can_acquire
    assert play.take("a", "10-14") == "10-14*1"


def test_kafka_17396_the_last_request_of_a_session_releases_the_records() -> None:
    sessions, play = ShareSessions(1), Play()
    sessions.fetch(KEY.group_id, "a", 0, [(KEY.topic_id, KEY.partition)])
    play.take("a", "0-9")
    assert sessions.fetch(KEY.group_id, "a", FINAL_EPOCH, ()).is_final
    for topic_id, partition in sessions.remove(KEY.group_id, "a"):
        assert (topic_id, partition) == KEY[1:]
        assert play.release("a") == "0 0 0-9:0*1"
    assert play.take("b", "0-9") == "0-9*2"


@pytest.mark.parametrize("said", ["0-9:1", "0-9:2", "0-9:3"])
def test_kafka_19227_an_acknowledgement_makes_room_for_fetches(said: str) -> None:
    """A waiting fetch was not woken: here `can_acquire` says so as soon as it is written."""
    play = Play(locks=10)
    play.take("a", "0-9")
    play.waits = True
    play.ack("a", said)
    assert not play.core.can_acquire
    play.answer()
    assert play.core.can_acquire


def test_kafka_19555_nothing_new_is_acquired_when_the_window_is_full() -> None:
    """A fetch from what was given back reached over the end of the window, past the limit."""
    play = Play(locks=30)
    play.take("a", "0-9 10-19 20-29")
    play.ack("a", "20:2")
    assert play.take("b", "20-29 30-39") == "20*2"
    play.ack("a", "29:2")
    assert play.take("b", "20-29 30-39 40-49", at=29) == "29*2"
    assert play.core.in_flight_records == 30


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize("log_start", [0, 5, 10])
@pytest.mark.parametrize("said", ["0-9:1", "0-9:2", "0-9:3", "0-4:1 5-9:3"])
def test_kafka_19476_a_lock_a_failed_write_and_a_log_start_at_once(
    said: str, log_start: int, ends_first: bool, written: bool
) -> None:
    """The number of complete records was wrong afterwards, or records were nobody's for ever."""
    play = Play()
    play.take("a", "0-9")
    play.waits = True
    play.ack("a", said)
    if ends_first:
        play.passes(1000)
    play.log_begins(log_start)
    if not ends_first:
        play.passes(1000)
    play.answer(Errors.NONE if written else Errors.COORDINATOR_NOT_AVAILABLE)
    while play.waiting:
        play.answer()
    if log_start == 10 or (written and said != "0-9:2"):
        assert play.window == ""
        assert play.ends == (10, 10)
    else:
        assert play.take("b", "0-9") == f"{log_start}-9*2"
    assert play.core.delivery_complete_count == 0


def test_kafka_19456_nothing_that_is_written_changes_an_epoch() -> None:
    play = Play()
    play.take("a", "0-9")
    play.ack("a", "0-4:1")
    play.release("a")
    play.passes(1000)
    play.log_begins(7)
    assert (play.core.state_epoch, play.core.leader_epoch) == (3, 2)


def test_kafka_19485_a_session_does_not_begin_with_acknowledgements() -> None:
    sessions = ShareSessions(1)
    with pytest.raises(SessionError) as refused:
        sessions.fetch("g", "a", 0, [(KEY.topic_id, 0)], acknowledges=True)
    assert refused.value.error is Errors.INVALID_REQUEST


def test_kafka_18494_what_was_given_out_and_not_written_about_is_given_out_again() -> None:
    """After a restart the window has gaps: their records are read again, and the start waits for them."""
    play = Play()
    play.take("a", "0-9")
    play.take("a", "10-19")
    assert play.ack("a", "10-19:1") == "0 10 10-19:2*1"
    play.load(0, "10-19:2*1")
    assert play.core.next_fetch_offset == 0
    assert play.take("b", "0-9 10-19 20-29") == "0-9*1 20-29*1"
    play.ack("b", "20-29:1")
    assert play.ends == (0, 29)
    play.ack("b", "0-9:1")
    assert play.ends == (30, 30)


def test_kafka_19859_a_late_acknowledgement_does_not_move_the_start_back() -> None:
    play = Play()
    play.take("a", "0-9")
    play.take("a", "10-19")
    play.waits = True
    play.ack("a", "0-4:1")
    play.log_begins(15)
    assert play.ends == (15, 19)
    play.answer()
    assert play.ends == (15, 19)
    play.waits = False
    assert play.ack("a", "5-16:1") == "15 2 15-16:2*1"
    assert play.ends == (17, 19)


def test_kafka_19954_no_offset_is_in_two_batches_nor_acquired_before_the_start() -> None:
    play = Play(start=5, state="15-20:4*1")
    assert play.take("a", "0-10") == "5-10*1"
    assert play.take("a", "11-25") == "11-14*1 21-25*1"
    cells = play.core._window.cells
    assert all(left.last < right.first for left, right in pairwise(cells))
    play.log_begins(8)
    assert play.take("b", "0-10", at=5) == ""
    play.ack("a", "8-10:2")
    assert play.take("b", "0-10") == "8-10*2"


def test_kafka_19567_a_new_leader_gives_out_what_the_old_one_had_given_out() -> None:
    play = Play()
    play.take("a", "0-9")
    play.load(0)
    assert play.core.can_acquire
    assert play.core.next_fetch_offset == 0
    assert play.take("b", "0-9") == "0-9*1"


def test_kafka_20034_complete_records_are_told_with_each_write() -> None:
    play = Play()
    play.take("a", "0-9")
    play.take("a", "10-19")
    assert play.ack("a", "5-6:1") == "0 2 5-6:2*1"
    assert play.ack("a", "12:3") == "0 3 12:4*1"
    assert play.ack("a", "0-4:1") == "0 8 0-4:2*1"
    assert play.ends == (7, 19)
    assert play.ack("a", "7:2") == "7 1 7:0*1"
    play.load(7, "7:0*1 12:4*1")
    assert play.core.delivery_complete_count == 1


def test_kafka_17541_one_bad_record_does_not_take_its_batch_with_it() -> None:
    """A member that dies of record 13 has the others with it in smaller and smaller parts; all but it are
    accepted in the end."""
    play = Play(limit=5)
    accepted: set[int] = set()
    for _ in range(200):
        acquired = play.take("a", "0-99")
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
            play.ack("a", f"{offset}:1")
    assert accepted == set(range(100)) - {13}
    assert play.ends == (100, 100)
    assert play.core.counts.archived == 1


def test_kafka_20458_a_renewed_record_is_delivered_to_nobody_again() -> None:
    """RENEW made it come again. Here it is still the member's, who hears of it no second time; what may be
    acquired beside it is."""
    play = Play(lock_ms=1000)
    play.take("a", "0-9")
    assert not play.ack("a", "0-9:4")
    for member in ("a", "b"):
        assert not play.take(member, "0-9", at=0)
    assert play.take("b", "10-19") == "10-19*1"
    play.ack("a", "0-4:1")
    play.ack("a", "5-9:2")
    assert play.take("b", "0-9", at=5) == "5-9*2"
