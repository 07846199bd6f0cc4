"""A classic member's heartbeat in a streams group is answered unread while there is nothing to tell it."""

from __future__ import annotations

from typing import Any

from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.members import Member
from tests.groups.streams.restorers import Restorer, Story, rounds

from konvene.errors import Errors
from konvene.shard.contract import Arm

STATELESS = "0:orders"


def mixed(**settings: str) -> tuple[Story, Restorer, Thread]:
    """ann, of the streams protocol, and bob, of the classic one, have three tasks each."""
    story = Story(konvene_streams_mode="kip", **settings)
    ann, bob = Restorer("ann", "ann", STATELESS, reports=False), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    while bob.settle(story) or not bob.active:
        rounds(story, [ann])
    assert (len(ann.active), len(bob.active)) == (3, 3)
    rounds(story, [ann])
    return story, ann, bob


def again(story: Story, bob: Thread, **said: Any) -> Any:
    """What the same heartbeat would rest on."""
    return story.life.runtime.coordinator.cacheable_decision(bob.beat_request().replace(**said))


def test_the_session_alone_is_prolonged() -> None:
    story, _, bob = mixed()
    assert bob.beat(story) is Errors.NONE
    known = again(story, bob)
    assert known.timers == (Arm(("session", "g", bob.member_id), 45_000),)
    assert story.life.runtime.coordinator.is_current(known)


def test_of_who_is_refused_nothing_is_remembered() -> None:
    """Another generation, another instance, nobody, and a member of the streams protocol."""
    story, ann, bob = mixed()
    assert again(story, bob, generation_id=bob.generation - 1) is None
    assert again(story, bob, group_instance_id="bob") is None
    assert again(story, bob, member_id="cid") is None
    assert again(story, bob, member_id=ann.member_id, generation_id=ann.epoch) is None


def test_a_change_of_the_group_is_news() -> None:
    """Before there is a new target nothing is remembered, for with it the answer is another."""
    story, ann, bob = mixed()
    known = again(story, bob)
    cid = Member("cid", "cid", STATELESS)
    cid.beat(story)
    assert not story.life.runtime.coordinator.is_current(known)
    assert again(story, bob) is None
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
    story.say("config group.streams.assignment.interval.ms=15000")
    for _ in range(3):
        bob.settle(story)
        for each in (ann, cid):
            each.beat(story)
    known = again(story, bob)
    assert known is not None
    cid.leave(story)
    assert bob.beat(story) is Errors.NONE
    assert not story.life.runtime.coordinator.is_current(known)
    assert again(story, bob) is None


def test_a_shutdown_is_news() -> None:
    story, ann, bob = mixed()
    known = again(story, bob)
    ann.beat(story, shutdown="yes")
    assert not story.life.runtime.coordinator.is_current(known)
    assert again(story, bob) is None


def test_who_is_to_tell_how_far_it_is_is_asked_each_time() -> None:
    """When it is time the answer is another, though nothing has changed."""
    story = Story(konvene_streams_mode="kip")
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    rounds(story, [ann])
    assert bob.standby
    assert bob.beat(story) is Errors.NONE
    assert again(story, bob) is None


def test_where_nobody_else_sees_that_topics_have_changed_nothing_is_remembered() -> None:
    story, ann, bob = mixed(konvene_streams_migration_policy="upgrade")
    ann.leave(story)
    while bob.settle(story):
        pass
    assert len(bob.active) == 6
    assert again(story, bob) is None
    story.say("topic orders partitions=8")
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS


def test_topics_that_are_missing_are_made_where_nobody_speaks_the_streams_protocol() -> None:
    """An operator deletes a changelog: nobody leads who would make it. So the coordinator has it made, and
    asks again where that fails."""
    story = Story(konvene_streams_mode="kip", konvene_streams_migration_policy="upgrade")
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    bob.sync(story)
    ann.leave(story)
    while bob.settle(story):
        story.say("ends -")
    assert len(bob.active) == 6
    story.say("topic counts partitions=0")
    while bob.settle(story):
        pass
    assert bob.active == []
    for _ in range(2):
        story.say("create fails")
        assert bob.beat(story) is Errors.NONE
    story.say("create")
    assert bob.settle(story)
    assert len(bob.active) == 6
