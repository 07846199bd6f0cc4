"""Members' reports of task offsets: kept per member, without effect on other members."""

from __future__ import annotations

from tests.groups.streams.members import Member, Play

from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def test_a_report_does_not_invalidate_others_heartbeats() -> None:
    """Their cached heartbeats stay valid, so that held ones are not answered."""
    play = Play()
    for member in 6 * (Member("ann", "p", "0:orders"), Member("bob", "q", "0:orders")):
        member.beat(play)
    group, coordinator = play.group, play.life.runtime.coordinator
    assert group is not None
    assert group.state == "Stable"
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="ann-1", member_epoch=group.epoch)
    cached = coordinator.cacheable_decision(beat)
    assert cached is not None
    play.run("streams-heartbeat bob offsets=0-3:7 ends=0-3:9")
    assert group.reported_by("bob-1").offsets == {"0": {3: 7}}
    assert coordinator.is_current(cached)
    play.run("streams-heartbeat bob ends=0-3:10")
    assert group.reported_by("bob-1").offsets == {"0": {3: 7}}
    assert group.reported_by("bob-1").end_offsets == {"0": {3: 10}}
    assert coordinator.is_current(cached)


def test_the_report_of_a_departed_member_is_removed() -> None:
    """A member that joins again under the same id has no former report."""
    play = Play()
    play.run("streams-heartbeat ann join")
    play.run("streams-heartbeat ann offsets=0-3:7")
    play.run("streams-heartbeat ann leave")
    assert play.group is not None
    assert play.group.reported == {}
