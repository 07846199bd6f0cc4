"""A classic group of Kafka Streams is upgraded to a streams group in the middle of its own rebalance."""

from __future__ import annotations

from tests.groups.consumer.harness import GroupHarness
from tests.groups.streams.classic.test_older_clients import beat, join, stable_member_and_waiting_join
from tests.groups.streams.classic.threads import Thread

from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.streams.current_assignment import MemberState


def without_assignments() -> tuple[GroupHarness, Thread, Thread, Thread]:
    """ann runs all tasks; bob and then zoe join before the leader has synced, and so no member has an
    assignment."""
    harness, ann, bob, waiting_join = stable_member_and_waiting_join(11)
    rejoin = join(harness, ann)
    harness.advance(10)
    ann.joined(harness.replies[rejoin])
    bob.joined(harness.replies[waiting_join])
    assert harness.group.state is State.COMPLETING_REBALANCE
    zoe = Thread("zoe")
    join(harness, zoe)
    assert harness.group.state is State.PREPARING_REBALANCE
    assert not any(member.assignment for member in harness.group.members.values())
    return harness, ann, bob, zoe


def test_members_keep_their_tasks_without_an_assignment_of_the_leader() -> None:
    """Its JoinGroup lists its tasks: they keep running until another member can take them over."""
    harness, ann, bob, _ = without_assignments()
    beat(harness)
    current = harness.group.members[ann.member_id].current
    assert current.state is MemberState.STABLE
    assert {name: sorted(some) for name, some in current.assigned.active.items()} == {"0": [0, 1, 2, 3, 4, 5]}
    assert not current.pending_revocation.active
    assert not harness.group.members[bob.member_id].current.assigned.active


def test_a_member_revokes_only_tasks_of_other_targets() -> None:
    """Two of its six tasks keep running after it has rejoined."""
    harness, ann, bob, zoe = without_assignments()
    beat(harness)
    kept = set(ann.active)
    for _ in range(4):
        for thread in (ann, bob, zoe):
            thread.joined(harness.ask(thread.join_request(), 7, thread.name))
            assert thread.synced(harness.ask(thread.sync_request(), 5, thread.name)) is Errors.NONE
        kept &= set(ann.active)
        beat(harness)
    assert len(kept) == 2
    shared = [*ann.active, *bob.active, *zoe.active]
    assert len(shared) == len(set(shared)) <= 5
