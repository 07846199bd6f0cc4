"""Cached heartbeats of classic members in a streams group."""

from __future__ import annotations

from typing import Any

from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.members import Member
from tests.groups.streams.restorers import Restorer, Story, rounds

from konvene.errors import Errors
from konvene.shard.contract import Arm

STATELESS = "0:orders"


def mixed(**settings: str) -> tuple[Story, Restorer, Thread]:
    """Return a settled group of ann (streams protocol) and bob (classic protocol), with three tasks each."""
    story = Story(konvene_streams_mode="kip", **settings)
    ann, bob = Restorer("ann", "ann", STATELESS, reports=False), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    while bob.settle(story) or not bob.active:
        rounds(story, [ann])
    assert (len(ann.active), len(bob.active)) == (3, 3)
    rounds(story, [ann])
    return story, ann, bob


def cached_decision(story: Story, bob: Thread, **fields: Any) -> Any:
    """Return the cached decision for the same heartbeat, or None."""
    return story.life.runtime.coordinator.cacheable_decision(bob.beat_request().replace(**fields))


def test_a_cached_heartbeat_only_prolongs_the_session() -> None:
    story, _, bob = mixed()
    assert bob.beat(story) is Errors.NONE
    cached = cached_decision(story, bob)
    assert cached.timers == (Arm(("session", "g", bob.member_id), 45_000),)
    assert story.life.runtime.coordinator.is_current(cached)


def test_a_refused_heartbeat_is_not_cached() -> None:
    """Another generation, another instance id, an unknown member, and a member of the streams protocol."""
    story, ann, bob = mixed()
    assert cached_decision(story, bob, generation_id=bob.generation - 1) is None
    assert cached_decision(story, bob, group_instance_id="bob") is None
    assert cached_decision(story, bob, member_id="cid") is None
    assert cached_decision(story, bob, member_id=ann.member_id, generation_id=ann.epoch) is None


def test_a_change_of_the_group_invalidates_it() -> None:
    """Nothing is cached before there is a new target, since that changes the response."""
    story, ann, bob = mixed()
    cached = cached_decision(story, bob)
    cid = Member("cid", "cid", STATELESS)
    cid.beat(story)
    assert not story.life.runtime.coordinator.is_current(cached)
    assert cached_decision(story, bob) is None
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
    story.run("config group.streams.assignment.interval.ms=15000")
    for _ in range(3):
        bob.settle(story)
        for each in (ann, cid):
            each.beat(story)
    cached = cached_decision(story, bob)
    assert cached is not None
    cid.leave(story)
    assert bob.beat(story) is Errors.NONE
    assert not story.life.runtime.coordinator.is_current(cached)
    assert cached_decision(story, bob) is None


def test_a_shutdown_invalidates_it() -> None:
    story, ann, bob = mixed()
    cached = cached_decision(story, bob)
    ann.beat(story, shutdown="yes")
    assert not story.life.runtime.coordinator.is_current(cached)
    assert cached_decision(story, bob) is None


def test_a_member_with_a_periodic_rejoin_is_not_cached() -> None:
    """When it is due the response is another, although nothing has changed."""
    story = Story(konvene_streams_mode="kip")
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    rounds(story, [ann])
    assert bob.standby
    assert bob.beat(story) is Errors.NONE
    assert cached_decision(story, bob) is None


def test_heartbeats_of_a_group_with_only_classic_members_are_not_cached() -> None:
    story, ann, bob = mixed(konvene_streams_migration_policy="upgrade")
    ann.leave(story)
    while bob.settle(story):
        pass
    assert len(bob.active) == 6
    assert cached_decision(story, bob) is None
    story.run("topic orders partitions=8")
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS


def test_missing_topics_are_created_in_a_group_with_only_classic_members() -> None:
    """An operator deletes a changelog, and no streams member is left to have it created. So the coordinator
    requests it, again after a failure."""
    story = Story(konvene_streams_mode="kip", konvene_streams_migration_policy="upgrade")
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    bob.sync(story)
    ann.leave(story)
    while bob.settle(story):
        story.run("ends -")
    assert len(bob.active) == 6
    story.run("topic counts partitions=0")
    while bob.settle(story):
        pass
    assert bob.active == []
    for _ in range(2):
        story.run("create fails")
        assert bob.beat(story) is Errors.NONE
    story.run("create")
    assert bob.settle(story)
    assert len(bob.active) == 6
