"""Static members that change their protocol: an instance id stays the same member in either protocol."""

from __future__ import annotations

import pytest
from tests.groups.streams.classic.threads import Task, Thread
from tests.groups.streams.members import Member, Play
from tests.groups.streams.restorers import Restorer, Story, rounds
from tests.groups.streams.topology.changing import (
    STATELESS,
    STREAMS_RECORDS,
    Named,
    classic_at,
    error_of,
    process,
    record_types,
    tasks,
    timers_of,
)

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State


def active_tasks(member: Member) -> list[Task]:
    """Return the active tasks of a streams member."""
    return sorted((name, partition) for role, name, partition in member.assigned if role == "active")


# --- classic to streams ----------------------------------------------------------------------------


def half_and_half(**settings: str) -> tuple[Play, Named, Named]:
    """A runs the even tasks, B the odd ones; both are static."""
    a, b = Named("A", instance="i-A"), Named("B", instance="i-B")
    return classic_at(7, (a, tasks(0, 2, 4)), (b, tasks(1, 3, 5)), **settings), a, b


def test_bug_32_a_classic_thread_returns_with_the_streams_protocol_and_keeps_its_tasks() -> None:
    """It replaces itself: no other member has to revoke a task, or to wait."""
    play, _, b = half_and_half()
    successor = Member("A2", process("A"), STATELESS, instance="i-A")
    assert successor.beat(play) is Errors.NONE
    assert active_tasks(successor) == tasks(0, 2, 4)
    group = play.group
    assert group is not None
    assert set(group.members) == {successor.member_id, "B"}
    assert group.instances == {"i-A": successor.member_id, "i-B": "B"}
    assert (group.classic_members, successor.epoch) == (1, group.epoch)
    assert group.members["B"].current.assigned.tasks.active == {"0": (1, 3, 5)}
    assert not group.members["B"].current.pending_revocation.active
    assert timers_of(play, "A") == set()
    b.settle(play)
    assert b.active == tasks(1, 3, 5)
    assert active_tasks(successor) == tasks(0, 2, 4)
    assert not b.settle(play)


def test_a_replaced_member_is_fenced_in_all_requests() -> None:
    """The former client may still run: it has to stop, and may not commit."""
    play, a, _ = half_and_half()
    successor = Member("A2", process("A"), STATELESS, instance="i-A")
    successor.beat(play)
    for request, version in ((a.beat_request(), 4), (a.sync_request(), 5), (a.join_request(), 9)):
        assert error_of(play, "A", request, version) is Errors.FENCED_INSTANCE_ID
    nameless = Thread("A", member_id="A", generation=7)
    assert error_of(play, "A", nameless.beat_request(), 4) is Errors.UNKNOWN_MEMBER_ID
    play.run("commit A orders-0:6 generation=7")
    assert play.answer("A") is Errors.UNKNOWN_MEMBER_ID
    assert successor.beat(play) is Errors.NONE


@pytest.mark.parametrize("waits_for", ["join", "sync"])
def test_a_waiting_request_of_a_replaced_member_is_answered(waits_for: str) -> None:
    """The former client waits in a rebalance of the classic group; its waiting request is answered with an
    error."""
    play, a, b = half_and_half()
    new = Thread("N")
    assert new.joined(play.life.ask("N", new.join_request(), 9))
    assert error_of(play, "N", new.join_request(), 9) is None
    assert error_of(play, "A", a.join_request(), 9) is None
    waiting = a
    if waits_for == "sync":
        assert error_of(play, "B", b.join_request(), 9) is Errors.NONE
        for each in (a, b):
            each.joined(play.answer(each.name))
        waiting = b if play.answer("A").leader == a.member_id else a
        assert error_of(play, waiting.name, waiting.sync_request(), 5) is None
    successor = Member("again", process(waiting.name), STATELESS, instance=waiting.instance)
    assert successor.beat(play) is Errors.NONE
    assert play.error(waiting.name) is Errors.REBALANCE_IN_PROGRESS
    assert error_of(play, waiting.name, waiting.join_request(), 9) is Errors.FENCED_INSTANCE_ID
    assert successor.epoch > 0


# --- streams to classic ----------------------------------------------------------------------------


def mixed(**settings: str) -> tuple[Story, Restorer, Named]:
    """ann speaks the streams protocol, bob the classic one; both are static and have three tasks each."""
    story = Story(konvene_streams_mode="kip", **settings)
    ann = Restorer("ann", process("ann"), STATELESS, instance="i-ann", reports=False)
    bob = Named("bob", instance="i-bob")
    rounds(story, [ann], 2)
    bob.join(story)
    while bob.settle(story) or not bob.active:
        rounds(story, [ann])
    rounds(story, [ann])
    assert (len(ann.active), len(bob.active)) == (3, 3)
    return story, ann, bob


def back(play: Play, name: str, instance: str = "i-ann") -> Named:
    """Let a member's next process join with the classic protocol; the join is answered at once."""
    successor = Named(name, instance=instance)
    assert not successor.joined(play.life.ask(name, successor.join_request(), 9))
    assert play.error(name) is Errors.NONE
    assert successor.member_id
    return successor


def test_bug_31_the_last_streams_member_returns_as_a_classic_one() -> None:
    """The group becomes a classic one, and continues without a rebalance if no member was behind."""
    story, ann, bob = mixed()
    epoch, before = story.group.epoch if story.group is not None else 0, sorted(ann.active)
    successor = back(story, "ann")
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, successor.generation) == (State.STABLE, epoch, epoch)
    assert set(group.members) == {successor.member_id, bob.member_id}
    assert group.instances == {"i-ann": successor.member_id, "i-bob": bob.member_id}
    assert successor.sync(story) is Errors.NONE
    assert successor.active == before
    assert [successor.beat(story), bob.beat(story)] == [Errors.NONE] * 2
    assert bob.sync(story) is Errors.NONE
    assert sorted([*successor.active, *bob.active]) == tasks(*range(6))
    assert not record_types(story.life.log.batches) & STREAMS_RECORDS
    assert timers_of(story, ann.member_id) == set()
    assert timers_of(story, successor.member_id) == {"session"}


def test_the_streams_member_that_was_replaced_is_refused() -> None:
    """Its heartbeats are for a missing streams group, and its commits from an unknown member."""
    story, ann, _ = mixed()
    back(story, "ann")
    old = ann.member_id
    story.run(f"commit ann orders-0:6 generation={ann.epoch} member={old}")
    assert story.answer("ann") in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID)
    story.run(f"commit ann orders-0:6 generation={ann.epoch} member={old} instance=i-ann")
    assert story.answer("ann") is Errors.FENCED_INSTANCE_ID
    assert ann.beat(story) is Errors.GROUP_ID_NOT_FOUND


def test_a_return_with_another_process_triggers_a_rebalance() -> None:
    """Targets depend on processes: the next leader assigns anew, and all members join for that."""
    story, _, bob = mixed()
    epoch = bob.generation
    successor = Named("elsewhere", instance="i-ann")
    successor.joined(story.life.ask("elsewhere", successor.join_request(), 9))
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, epoch)
    assert set(group.members) == {successor.member_id, bob.member_id}
    assert error_of(story, "elsewhere", successor.join_request(), 9) is None
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert error_of(story, "bob", bob.join_request(), 9) is Errors.NONE
    assert [story.answer(name).generation_id for name in ("elsewhere", "bob")] == [epoch + 1] * 2
    assert not record_types(story.life.log.batches) & STREAMS_RECORDS


def test_a_return_while_a_member_is_behind_triggers_a_rebalance() -> None:
    """bob has not been notified yet of the revocation for ann's next target."""
    story = Story(konvene_streams_mode="kip")
    ann = Restorer("ann", process("ann"), STATELESS, instance="i-ann", reports=False)
    rounds(story, [ann], 2)
    bob = Named("bob", instance="i-bob")
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    assert bob.active == []
    successor = back(story, "ann")
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING_REBALANCE
    assert set(group.members) == {successor.member_id, bob.member_id}


@pytest.mark.parametrize("limit", ["upgrade", "size"])
def test_a_return_to_a_group_that_may_not_be_downgraded(limit: str) -> None:
    """It keeps its assignment; the group has only classic members and continues."""
    more = {"konvene_streams_migration_policy": "upgrade"} if limit == "upgrade" else {"group_max_size": "1"}
    story, ann, bob = mixed(**more)
    before = sorted(ann.active)
    successor = back(story, "ann")
    group = story.group
    assert group is not None
    assert (set(group.members), group.classic_members) == ({successor.member_id, bob.member_id}, 2)
    assert group.instances["i-ann"] == successor.member_id
    while successor.sync(story) is not Errors.NONE:
        successor.join(story)
    assert successor.active == before
    assert sorted([*successor.active, *bob.active]) == tasks(*range(6))


def test_bug_29_the_state_of_a_replaced_member_is_removed() -> None:
    """Its task offsets, its endpoint and its timers are removed with it."""
    story = Story(konvene_streams_mode="kip", konvene_streams_migration_policy="upgrade")
    ann = Restorer("ann", process("ann"), "0:orders!counts", instance="i-ann", endpoint="ann:80")
    rounds(story, [ann], 3)
    bob = Named("bob", instance="i-bob", endpoint="bob:80")
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    rounds(story, [ann], 2)
    group = story.group
    assert group is not None
    assert bob.has is not None
    assert ("ann", 80) in bob.has.partitions_by_host
    old, epoch = ann.member_id, group.soft.endpoint_epoch
    assert old in group.reported
    successor = back(story, "ann")
    assert group is story.group
    assert old not in group.reported
    assert timers_of(story, old) == set()
    assert group.soft.endpoint_epoch > epoch
    assert successor.sync(story) is Errors.NONE
    bob.join(story)
    bob.sync(story)
    assert bob.has is not None
    assert {host for host, _ in (*bob.has.partitions_by_host, *bob.has.standby_partitions_by_host)} == {"bob"}


# --- one instance id twice -------------------------------------------------------------------------


def test_a_second_streams_member_with_a_live_instance_id_is_refused() -> None:
    """The first one has not left; it keeps its assignment and its epoch."""
    story, ann, bob = mixed()
    before, group = sorted(ann.active), story.group
    assert group is not None
    epoch = group.epoch
    other = Member("ann2", process("ann"), STATELESS, instance="i-ann")
    assert other.beat(story) is Errors.UNRELEASED_INSTANCE_ID
    assert (group.epoch, group.instances["i-ann"]) == (epoch, ann.member_id)
    assert ann.beat(story) is Errors.NONE
    assert sorted(ann.active) == before
    assert bob.beat(story) is Errors.NONE
