"""Records that are given up are copied first, and archived then (KIP-1191)."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.delivery.contract import DeadLetter
from konvene.errors import Errors

REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."


def test_a_rejected_batch() -> None:
    play = Play(dead_letters=True)
    play.take("a", "0-4")
    assert play.ack("a", "0-4:3") == "0 0 0-4:3*1"
    assert play.window == "0-4 leaving*1"
    assert play.letters == [DeadLetter(0, 4, 1, REJECTED)]
    assert play.core.next_fetch_offset == 5
    assert play.copied() == "0 5 0-4:4*1"
    assert play.ends == (5, 5)
    assert play.core.counts.archived == 5


def test_some_offsets_of_a_batch() -> None:
    play = Play(dead_letters=True)
    play.take("a", "0-9")
    assert play.ack("a", "0-9:1,3,3,1,0,3,2,1,1,1") == "0 6 0:2*1 1-2:3*1 3:2*1 4:4*1 5:3*1 6:0*1 7-9:2*1"
    assert play.letters == [DeadLetter(1, 2, 1, REJECTED), DeadLetter(5, 5, 1, REJECTED)]
    assert play.ends == (1, 9)
    assert play.copied() == "1 7 1-2:4*1"
    assert play.ends == (5, 9)
    assert play.copied() == "5 4 5:4*1"
    assert play.ends == (6, 9)


@pytest.mark.parametrize("ends", ["lock", "release", "session"])
def test_delivered_too_often(ends: str) -> None:
    play = Play(limit=1, dead_letters=True)
    play.take("a", "0-4")
    if ends == "lock":
        written = play.passes(1000)
    else:
        written = play.ack("a", "0-4:2") if ends == "release" else play.release("a")
    assert written == "0 0 0-4:3*1"
    assert play.letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]
    assert play.core.counts.archived == 5
    assert play.copied() == "0 5 0-4:4*1"
    assert play.ends == (5, 5)


def test_a_group_without_a_queue_archives_at_once() -> None:
    play = Play()
    play.take("a", "0-4")
    assert play.ack("a", "0-4:3") == "0 5 0-4:4*1"
    assert play.letters == []


def test_some_were_delivered_more_often_than_others() -> None:
    play = Play(limit=2, dead_letters=True)
    play.take("a", "0-9")
    play.ack("a", "3-4:2")
    play.take("a", "0-9")
    assert play.passes(1000) == "0 0 0-2:0*1 3-4:3*2 5-9:0*1"
    assert play.letters == [DeadLetter(3, 4, 2, TOO_OFTEN)]


class TestWritingFails:
    def test_of_a_rejection(self) -> None:
        play = Play(dead_letters=True)
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", "0-4:3")
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert play.window == "0-4 a*1"
        assert play.letters == []

    def test_of_a_lock_that_ended(self) -> None:
        """The records were given up, written or not: they are copied, and archived."""
        play = Play(limit=1, dead_letters=True)
        play.take("a", "0-4")
        play.waits = True
        play.passes(1000)
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == ""
        assert play.letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]
        play.waits = False
        assert play.copied() == "0 5 0-4:4*1"
        assert play.ends == (5, 5)

    def test_of_what_was_copied(self) -> None:
        """They are archived all the same; it is written with the start offset."""
        play = Play(dead_letters=True)
        play.take("a", "0-4")
        play.ack("a", "0-4:3")
        play.waits = True
        play.copied()
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.ends == (5, 5)

    def test_of_a_rejection_whose_lock_ended_meanwhile(self) -> None:
        """Kafka archives them without a copy then, and its count of complete records is too small."""
        play = Play(limit=1, dead_letters=True)
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", "0-4:3")
        play.passes(1000)
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == "0 0 0-4:3*1"
        play.answer()
        assert play.letters == [DeadLetter(0, 4, 1, TOO_OFTEN)]


class TestAfterARestart:
    def test_what_was_being_copied_is_copied_again(self) -> None:
        play = Play(start=0, state="0-2:3*1 3-4:3*5 5-9:0*1", dead_letters=True)
        assert play.letters == [DeadLetter(0, 2, 1, REJECTED), DeadLetter(3, 4, 5, TOO_OFTEN)]
        assert play.ends == (0, 9)
        assert play.core.next_fetch_offset == 5
        assert play.copied() == "0 3 0-2:4*1"
        assert play.ends == (3, 9)
        assert play.copied() == "3 2 3-4:4*5"
        assert play.ends == (5, 9)

    def test_even_if_there_is_no_queue_any_more(self) -> None:
        play = Play(start=0, state="0-2:3*1")
        assert play.letters == [DeadLetter(0, 2, 1, REJECTED)]
        assert play.copied() == "0 3 0-2:4*1"
        assert play.ends == (3, 3)


def test_the_log_begins_later_before_they_are_copied() -> None:
    play = Play(dead_letters=True)
    play.take("a", "0-9")
    play.ack("a", "0-4:3")
    play.log_begins(3)
    assert play.copied() == "3 2 3-4:4*1"
    assert play.ends == (5, 9)
    play.ack("a", "5-9:3")
    play.log_begins(10)
    assert play.copied() == ""
    assert play.ends == (10, 10)


def test_records_that_are_being_copied_are_not_given_out() -> None:
    play = Play(dead_letters=True)
    play.take("a", "0-9")
    play.ack("a", "0-4:3 5-9:2")
    assert play.take("b", "0-9", at=0) == "5-9*2"
    assert play.ack("a", "0-4:1").startswith("INVALID_RECORD_STATE")
    assert play.release("a") == ""
