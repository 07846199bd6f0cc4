"""When a target assignment is computed, if that is done in the background."""

from __future__ import annotations

from tests.groups.streams.members import Play

COMPUTATION = "work compute-assignment g epoch"


def started_epochs(lines: list[str]) -> list[int]:
    """Return the epochs whose target computation was started."""
    return [int(line.removeprefix(COMPUTATION)) for line in lines if line.startswith(COMPUTATION)]


def test_joins_during_a_computation_start_no_other_one() -> None:
    """Otherwise a thousand simultaneous joins would start a thousand computations, of which the last one
    counts."""
    play = Play()
    play.run("heavy 0")
    assert started_epochs(play.run("streams-heartbeat ann join")) == [2]
    assert started_epochs(play.run("streams-heartbeat bob join")) == []
    assert started_epochs(play.run("streams-heartbeat ann")) == []
    assert not any(line.startswith("record") for line in play.run("work"))
    assert started_epochs(play.run("streams-heartbeat bob")) == [3]
    assert any(line.startswith("record assignment g epoch 3") for line in play.run("work"))


def test_the_initial_delay_starts_no_computation_beside_another() -> None:
    """Also if the group was empty in between, which restarts the initial delay."""
    play = Play(group_streams_initial_rebalance_delay_ms="3000")
    play.run("heavy 0")
    play.run("streams-heartbeat ann join")
    assert started_epochs(play.run("advance 3000")) == [2]
    play.run("streams-heartbeat ann leave")
    play.run("streams-heartbeat bob join")
    assert started_epochs(play.run("advance 3000")) == []
    play.run("work")
    assert started_epochs(play.run("streams-heartbeat bob")) == [4]
