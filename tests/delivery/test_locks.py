"""When locks end, sessions close and members leave: the records are somebody else's, or were given up."""

from __future__ import annotations

import pytest
from tests.delivery.playing import Play

from konvene.delivery.contract import InFlight, RecordState
from konvene.errors import Errors


class TestLocks:
    def test_a_lock_ends(self) -> None:
        play = Play()
        assert play.core.lock_end_ms is None
        play.take("a", "0-9")
        assert play.core.lock_end_ms == 1000
        assert play.passes(999) == ""
        assert play.passes(1) == "0 0 0-9:0*1"
        assert play.window == "0-9 free*1"
        assert play.core.lock_end_ms is None
        assert play.core.counts.lock_timeouts == 10
        assert play.take("b", "0-9") == "0-9*2"

    def test_each_acquisition_has_its_own(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.passes(400)
        play.take("b", "5-9")
        assert play.passes(600) == "0 0 0-4:0*1"
        assert play.core.lock_end_ms == 1400
        assert play.passes(400) == "0 0 5-9:0*1"

    def test_several_end_at_once(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.passes(1)
        play.take("b", "5-9")
        play.passes(1)
        play.take("c", "20-29")
        assert play.passes(2000) == "0 0 0-9:0*1 20-29:0*1"

    def test_what_was_acknowledged_is_not_taken_back(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.ack("a", "2-3:1 5:2 7:3")
        assert play.passes(1000) == "0 3 0-1:0*1 4:0*1 6:0*1 8-9:0*1"
        assert play.ack("a", "0-1:1").startswith("INVALID_RECORD_STATE")

    def test_an_acknowledgement_takes_the_lock_off(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.passes(10)
        play.take("a", "5-9")
        play.ack("a", "0-4:1")
        assert play.core.lock_end_ms == 1010

    def test_delivered_too_often(self) -> None:
        play = Play(limit=2)
        for count in (1, 2):
            assert play.take("a", "0-4") == f"0-4*{count}"
            written = play.passes(1000)
        assert written == "0 5 0-4:4*2"
        assert play.ends == (5, 5)
        assert play.core.counts.archived == 5

    def test_it_is_available_before_that_is_written(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.waits = True
        assert play.passes(1000) == "0 0 0-4:0*1"
        assert play.take("b", "0-4") == "0-4*2"
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.window == "0-4 b*2"

    def test_what_is_acquired_again_at_the_same_time_ends_once(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.ack("a", "0-9:2")
        play.take("b", "0-9")
        assert play.passes(1000) == "0 0 0-9:0*2"
        assert play.core.counts.lock_timeouts == 10

    def test_the_length_is_what_the_settings_say_now(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.change_terms(lock_ms=200)
        play.take("b", "5-9")
        assert play.core.lock_end_ms == 200
        assert play.passes(200) == "0 0 5-9:0*1"
        assert play.core.lock_end_ms == 1000

    def test_locks_that_were_taken_off_are_forgotten(self) -> None:
        play = Play()
        for base in range(0, 5000, 5):
            play.take("a", f"{base}-{base + 4}")
            play.ack("a", f"{base}-{base + 4}:1")
        assert len(play.core._window.locks._heap) <= 100


class TestRelease:
    def test_a_batch(self) -> None:
        play = Play()
        play.take("a", "0-9")
        assert play.release("a") == "0 0 0-9:0*1"
        assert play.core.next_fetch_offset == 0
        assert play.core.lock_end_ms is None

    def test_of_nobody(self) -> None:
        play = Play()
        assert play.release("a") == ""
        play.take("a", "0-9")
        assert play.release("b") == ""
        play.ack("a", "0-9:2")
        assert play.release("a") == ""

    def test_what_was_acknowledged_stays_so(self) -> None:
        play = Play()
        play.take("a", "0-4")
        play.take("a", "5-14")
        play.ack("a", "0-4:2 6-9:1 11:3")
        assert play.release("a") == "0 5 5:0*1 10:0*1 12-14:0*1"

    def test_what_others_have_stays_theirs(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.ack("a", "3-4:2")
        play.take("b", "0-9")
        assert play.release("b") == "0 0 3-4:0*2"
        assert play.release("a") == "0 0 0-2:0*1 5-9:0*1"

    def test_the_delivery_counts(self) -> None:
        play = Play(limit=2)
        play.take("a", "0-4")
        play.release("a")
        assert play.take("a", "0-4") == "0-4*2"
        assert play.release("a") == "0 5 0-4:4*2"
        assert play.ends == (5, 5)

    def test_some_were_delivered_too_often(self) -> None:
        play = Play(limit=2)
        play.take("a", "0-9")
        play.ack("a", "0-4:2")
        play.take("a", "0-4")
        assert play.release("a") == "0 5 0-4:4*2 5-9:0*1"
        assert play.window == "5-9 free*1"

    def test_it_cannot_be_written(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.release("a")
        assert play.window == "0-9 free?*1"
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.window == "0-9 a*1"
        play.waits = False
        assert play.passes(1000) == "0 0 0-9:0*1"

    def test_the_limit_is_what_the_settings_say_now(self) -> None:
        play = Play(limit=5)
        play.take("a", "0-4")
        play.release("a")
        play.take("a", "0-4")
        play.change_terms(delivery_count_limit=2)
        assert play.release("a") == "0 5 0-4:4*2"
        play.take("a", "5-9")
        play.release("a")
        play.take("a", "5-9")
        play.change_terms(delivery_count_limit=3)
        assert play.release("a") == "5 0 5-9:0*2"


class TestALockEndsWhileSomethingIsWritten:
    """SH8: one of both holds, and the sums are right."""

    @pytest.mark.parametrize("said", ["0-4:1", "0-4:2", "0-4:3"])
    def test_the_writing_succeeds(self, said: str) -> None:
        play = Play()
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", said)
        assert play.passes(1000) == ""
        assert play.answer() == ""
        assert play.window == ("0-4 free*1" if said == "0-4:2" else "")
        assert play.core.lock_end_ms is None

    @pytest.mark.parametrize("said", ["0-4:1", "0-4:2", "0-4:3", "0-4:1,2,3,0,1"])
    def test_the_writing_fails(self, said: str) -> None:
        play = Play()
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", said)
        assert play.passes(1000) == ""
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == "0 0 0-4:0*1"
        assert play.core.delivery_complete_count == 0
        assert play.core.next_fetch_offset == 0
        assert play.take("b", "0-4") == "0-4*2"

    def test_the_writing_fails_the_last_time(self) -> None:
        play = Play(limit=1)
        play.take("a", "0-4")
        play.waits = True
        play.ack("a", "0-4:1")
        play.passes(1000)
        assert play.answer(Errors.COORDINATOR_NOT_AVAILABLE) == "0 5 0-4:4*1"
        play.answer()
        assert play.ends == (5, 5)

    def test_before_that_the_log_begins_later(self) -> None:
        play = Play()
        play.take("a", "0-9")
        play.waits = True
        play.ack("a", "0-9:1")
        play.log_begins(5)
        play.passes(1000)
        assert play.core.delivery_complete_count == 5
        play.answer(Errors.COORDINATOR_NOT_AVAILABLE)
        assert play.core.delivery_complete_count == 0
        assert play.window == "5-9 free*1"


def test_what_an_operator_sees() -> None:
    play = Play(start=0, state="0-1:0*3", dead_letters=True)
    play.now_ms = 50
    play.take("a", "5-9")
    play.ack("a", "5:1 6:2 7:3")
    play.waits = True
    play.ack("a", "9:1")
    free, held = RecordState.AVAILABLE, RecordState.ACQUIRED
    assert list(play.core.in_flight()) == [
        InFlight(6, 6, free, "", 1, -1, -1),
        InFlight(7, 7, RecordState.ARCHIVING, "", 1, -1, -1),
        InFlight(8, 8, held, "a", 1, 50, 1050),
        InFlight(9, 9, RecordState.ACKNOWLEDGED, "", 1, -1, -1),
    ]
