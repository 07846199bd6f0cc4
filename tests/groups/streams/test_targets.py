"""When a target is computed, where that is done elsewhere."""

from __future__ import annotations

from tests.groups.streams.members import Play

BEGUN = "work compute-assignment g epoch"


def begun(lines: list[str]) -> list[int]:
    """The epochs for which somebody is asked for a target."""
    return [int(line.removeprefix(BEGUN)) for line in lines if line.startswith(BEGUN)]


def test_members_who_join_meanwhile_begin_no_other_target() -> None:
    """A thousand who join at once would ask for a thousand targets, of which the last one counts."""
    play = Play()
    play.say("heavy 0")
    assert begun(play.say("streams-heartbeat ann join")) == [2]
    assert begun(play.say("streams-heartbeat bob join")) == []
    assert begun(play.say("streams-heartbeat ann")) == []
    assert not any(line.startswith("record") for line in play.say("work"))
    assert begun(play.say("streams-heartbeat bob")) == [3]
    assert any(line.startswith("record assignment g epoch 3") for line in play.say("work"))


def test_when_the_first_members_had_their_time_none_is_begun_beside_another() -> None:
    """Also where the group was empty in between, and has its time again."""
    play = Play(group_streams_initial_rebalance_delay_ms="3000")
    play.say("heavy 0")
    play.say("streams-heartbeat ann join")
    assert begun(play.say("advance 3000")) == [2]
    play.say("streams-heartbeat ann leave")
    play.say("streams-heartbeat bob join")
    assert begun(play.say("advance 3000")) == []
    play.say("work")
    assert begun(play.say("streams-heartbeat bob")) == [4]
