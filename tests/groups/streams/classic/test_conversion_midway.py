"""A classic group of Kafka Streams becomes a streams group in the middle of a rebalance of its own."""

from __future__ import annotations

from tests.groups.consumer.room import Room
from tests.groups.streams.classic.test_older_clients import beat, joins, stable_one_and_another_that_waits
from tests.groups.streams.classic.threads import Thread

from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.streams.current_assignment import MemberState


def without_assignments() -> tuple[Room, Thread, Thread, Thread]:
    """ann runs all; bob and then zoe join before the leader has spoken, and so nobody is given anything."""
    room, ann, bob, waits = stable_one_and_another_that_waits(11)
    again = joins(room, ann)
    room.advance(10)
    ann.joined(room.replies[again])
    bob.joined(room.replies[waits])
    assert room.group.state is State.COMPLETING_REBALANCE
    zoe = Thread("zoe")
    joins(room, zoe)
    assert room.group.state is State.PREPARING_REBALANCE
    assert not any(member.assignment for member in room.group.members.values())
    return room, ann, bob, zoe


def test_what_members_run_stays_theirs_where_their_leader_has_not_spoken() -> None:
    """They have said it themselves: nobody has to stop before there is somebody to take it."""
    room, ann, bob, _ = without_assignments()
    beat(room)
    current = room.group.members[ann.member_id].current
    assert current.state is MemberState.STABLE
    assert {name: sorted(some) for name, some in current.assigned.active.items()} == {"0": [0, 1, 2, 3, 4, 5]}
    assert not current.pending_revocation.active
    assert not room.group.members[bob.member_id].current.assigned.active


def test_it_gives_up_what_is_for_others_and_no_more() -> None:
    """Two of its six tasks it runs on without a break, once it has joined again."""
    room, ann, bob, zoe = without_assignments()
    beat(room)
    kept = set(ann.active)
    for _ in range(4):
        for thread in (ann, bob, zoe):
            thread.joined(room.ask(thread.join_request(), 7, thread.name))
            assert thread.synced(room.ask(thread.sync_request(), 5, thread.name)) is Errors.NONE
        kept &= set(ann.active)
        beat(room)
    assert len(kept) == 2
    shared = [*ann.active, *bob.active, *zoe.active]
    assert len(shared) == len(set(shared)) <= 5
