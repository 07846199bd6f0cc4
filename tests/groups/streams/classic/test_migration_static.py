"""Static members whose protocol changes: who is back under a name is the same member, whatever it speaks."""

from __future__ import annotations

import pytest
from tests.groups.streams.classic.threads import Task, Thread
from tests.groups.streams.members import Member, Play
from tests.groups.streams.restorers import Restorer, Story, rounds
from tests.groups.streams.topology.changing import (
    STATELESS,
    STREAMS_RECORDS,
    Named,
    asked,
    classic_at,
    kinds,
    process,
    tasks,
    timers_of,
)

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State


def runs(member: Member) -> list[Task]:
    """What a member of the streams protocol runs."""
    return sorted((name, partition) for role, name, partition in member.told if role == "active")


# --- classic to streams ----------------------------------------------------------------------------


def half_and_half(**settings: str) -> tuple[Play, Named, Named]:
    """A runs the even tasks, B the odd ones; both have names."""
    a, b = Named("A", instance="i-A"), Named("B", instance="i-B")
    return classic_at(7, (a, tasks(0, 2, 4)), (b, tasks(1, 3, 5)), **settings), a, b


def test_bug_32_a_classic_thread_is_back_with_the_streams_protocol_and_has_its_tasks() -> None:
    """It replaces itself: nobody else has to give up anything, or to wait."""
    play, _, b = half_and_half()
    again = Member("A2", process("A"), STATELESS, instance="i-A")
    assert again.beat(play) is Errors.NONE
    assert runs(again) == tasks(0, 2, 4)
    group = play.group
    assert group is not None
    assert set(group.members) == {again.member_id, "B"}
    assert group.instances == {"i-A": again.member_id, "i-B": "B"}
    assert (group.classic_members, again.epoch) == (1, group.epoch)
    assert group.members["B"].current.assigned.tasks.active == {"0": (1, 3, 5)}
    assert not group.members["B"].current.pending_revocation.active
    assert timers_of(play, "A") == set()
    b.settle(play)
    assert b.active == tasks(1, 3, 5)
    assert runs(again) == tasks(0, 2, 4)
    assert not b.settle(play)


def test_who_was_replaced_is_fenced_in_all_that_it_asks() -> None:
    """The old client may still be there: it has to stop, and may not commit."""
    play, a, _ = half_and_half()
    again = Member("A2", process("A"), STATELESS, instance="i-A")
    again.beat(play)
    for request, version in ((a.beat_request(), 4), (a.sync_request(), 5), (a.join_request(), 9)):
        assert asked(play, "A", request, version) is Errors.FENCED_INSTANCE_ID
    nameless = Thread("A", member_id="A", generation=7)
    assert asked(play, "A", nameless.beat_request(), 4) is Errors.UNKNOWN_MEMBER_ID
    play.say("commit A orders-0:6 generation=7")
    assert play.answer("A") is Errors.UNKNOWN_MEMBER_ID
    assert again.beat(play) is Errors.NONE


@pytest.mark.parametrize("waits_for", ["join", "sync"])
def test_who_is_replaced_in_the_middle_of_a_rebalance_is_answered(waits_for: str) -> None:
    """The old client waits in a rebalance of the classic group; its place is taken, and it is told so."""
    play, a, b = half_and_half()
    new = Thread("N")
    assert new.joined(play.life.ask("N", new.join_request(), 9))
    assert asked(play, "N", new.join_request(), 9) is None
    assert asked(play, "A", a.join_request(), 9) is None
    waits = a
    if waits_for == "sync":
        assert asked(play, "B", b.join_request(), 9) is Errors.NONE
        for each in (a, b):
            each.joined(play.answer(each.name))
        waits = b if play.answer("A").leader == a.member_id else a
        assert asked(play, waits.name, waits.sync_request(), 5) is None
    again = Member("again", process(waits.name), STATELESS, instance=waits.instance)
    assert again.beat(play) is Errors.NONE
    assert play.error(waits.name) is Errors.REBALANCE_IN_PROGRESS
    assert asked(play, waits.name, waits.join_request(), 9) is Errors.FENCED_INSTANCE_ID
    assert again.epoch > 0


# --- streams to classic ----------------------------------------------------------------------------


def mixed(**settings: str) -> tuple[Story, Restorer, Named]:
    """ann speaks the streams protocol, bob the classic one; both have names, and three tasks each."""
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
    """A member's next self, of the classic protocol: it joins, and is answered at once."""
    again = Named(name, instance=instance)
    assert not again.joined(play.life.ask(name, again.join_request(), 9))
    assert play.error(name) is Errors.NONE
    assert again.member_id
    return again


def test_bug_31_the_last_streams_member_is_back_as_a_classic_one() -> None:
    """The group is a classic one, and where nobody was behind it goes on as it is."""
    story, ann, bob = mixed()
    epoch, had = story.group.epoch if story.group is not None else 0, sorted(ann.active)
    again = back(story, "ann")
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, again.generation) == (State.STABLE, epoch, epoch)
    assert set(group.members) == {again.member_id, bob.member_id}
    assert group.instances == {"i-ann": again.member_id, "i-bob": bob.member_id}
    assert again.sync(story) is Errors.NONE
    assert again.active == had
    assert [again.beat(story), bob.beat(story)] == [Errors.NONE] * 2
    assert bob.sync(story) is Errors.NONE
    assert sorted([*again.active, *bob.active]) == tasks(*range(6))
    assert not kinds(story.life.log.batches) & STREAMS_RECORDS
    assert timers_of(story, ann.member_id) == set()
    assert timers_of(story, again.member_id) == {"session"}


def test_the_streams_member_that_was_replaced_is_refused() -> None:
    """Its heartbeats are of no streams group any more, and its commits of nobody."""
    story, ann, _ = mixed()
    back(story, "ann")
    old = ann.member_id
    story.say(f"commit ann orders-0:6 generation={ann.epoch} member={old}")
    assert story.answer("ann") in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID)
    story.say(f"commit ann orders-0:6 generation={ann.epoch} member={old} instance=i-ann")
    assert story.answer("ann") is Errors.FENCED_INSTANCE_ID
    assert ann.beat(story) is Errors.GROUP_ID_NOT_FOUND


def test_who_is_back_with_another_process_is_followed_by_a_rebalance() -> None:
    """Targets rest on processes: the next leader is to say who has what, and all come to it."""
    story, _, bob = mixed()
    epoch = bob.generation
    again = Named("elsewhere", instance="i-ann")
    again.joined(story.life.ask("elsewhere", again.join_request(), 9))
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, epoch)
    assert set(group.members) == {again.member_id, bob.member_id}
    assert asked(story, "elsewhere", again.join_request(), 9) is None
    assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert asked(story, "bob", bob.join_request(), 9) is Errors.NONE
    assert [story.answer(name).generation_id for name in ("elsewhere", "bob")] == [epoch + 1] * 2
    assert not kinds(story.life.log.batches) & STREAMS_RECORDS


def test_where_somebody_is_behind_a_rebalance_follows() -> None:
    """bob was not told yet that he has to give up what ann's next target would take."""
    story = Story(konvene_streams_mode="kip")
    ann = Restorer("ann", process("ann"), STATELESS, instance="i-ann", reports=False)
    rounds(story, [ann], 2)
    bob = Named("bob", instance="i-bob")
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    assert bob.active == []
    again = back(story, "ann")
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING_REBALANCE
    assert set(group.members) == {again.member_id, bob.member_id}


@pytest.mark.parametrize("why", ["upgrade", "size"])
def test_who_is_back_in_a_group_that_may_not_be_downgraded_stays_in_it(why: str) -> None:
    """Its place is its own all the same; the group has classic members alone, and goes on."""
    more = {"konvene_streams_migration_policy": "upgrade"} if why == "upgrade" else {"group_max_size": "1"}
    story, ann, bob = mixed(**more)
    had = sorted(ann.active)
    again = back(story, "ann")
    group = story.group
    assert group is not None
    assert (set(group.members), group.classic_members) == ({again.member_id, bob.member_id}, 2)
    assert group.instances["i-ann"] == again.member_id
    while again.sync(story) is not Errors.NONE:
        again.join(story)
    assert again.active == had
    assert sorted([*again.active, *bob.active]) == tasks(*range(6))


def test_bug_29_nothing_is_kept_of_who_was_replaced() -> None:
    """What it had said of its tasks, where it was to be found, and what it was waited for is gone with it."""
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
    again = back(story, "ann")
    assert group is story.group
    assert old not in group.reported
    assert timers_of(story, old) == set()
    assert group.soft.endpoint_epoch > epoch
    assert again.sync(story) is Errors.NONE
    bob.join(story)
    bob.sync(story)
    assert bob.has is not None
    assert {host for host, _ in (*bob.has.partitions_by_host, *bob.has.standby_partitions_by_host)} == {"bob"}


# --- the same name twice ---------------------------------------------------------------------------


def test_a_second_streams_member_under_a_live_name_is_turned_away() -> None:
    """The first of them has not left; it keeps its place, its tasks and its epoch."""
    story, ann, bob = mixed()
    had, group = sorted(ann.active), story.group
    assert group is not None
    epoch = group.epoch
    other = Member("ann2", process("ann"), STATELESS, instance="i-ann")
    assert other.beat(story) is Errors.UNRELEASED_INSTANCE_ID
    assert (group.epoch, group.instances["i-ann"]) == (epoch, ann.member_id)
    assert ann.beat(story) is Errors.NONE
    assert sorted(ann.active) == had
    assert bob.beat(story) is Errors.NONE
