"""How far members say that their tasks have come: kept for each of them, and nobody else's business."""

from __future__ import annotations

from tests.groups.streams.members import Member, Play

from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def test_what_one_reports_changes_nothing_for_the_others() -> None:
    """Their heartbeats are the same as before, so that held ones stay where they are."""
    play = Play()
    for member in 6 * (Member("ann", "p", "0:orders"), Member("bob", "q", "0:orders")):
        member.beat(play)
    group, coordinator = play.group, play.life.runtime.coordinator
    assert group is not None
    assert group.state == "Stable"
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="ann-1", member_epoch=group.epoch)
    known = coordinator.cacheable_decision(beat)
    assert known is not None
    play.say("streams-heartbeat bob offsets=0-3:7 ends=0-3:9")
    assert group.reported_by("bob-1").offsets == {"0": {3: 7}}
    assert coordinator.is_current(known)
    play.say("streams-heartbeat bob ends=0-3:10")
    assert group.reported_by("bob-1").offsets == {"0": {3: 7}}
    assert group.reported_by("bob-1").end_offsets == {"0": {3: 10}}
    assert coordinator.is_current(known)


def test_who_is_gone_has_reported_nothing() -> None:
    """Under the same id it begins anew."""
    play = Play()
    play.say("streams-heartbeat ann join")
    play.say("streams-heartbeat ann offsets=0-3:7")
    play.say("streams-heartbeat ann leave")
    assert play.group is not None
    assert play.group.reported == {}
