"""Invariants of the state of consumer groups, live and in the log: owners, epochs, sessions, timers.

A group is checked when it changed, and all groups at every audit. Ownership is also derived from the records
of the log alone. `konvene.sim.invariants.modern` has the rules that streams and share groups have as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import Epochs, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, SoftState
from konvene.records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from konvene.shard.contract import TimerKey
from konvene.sim.invariants.modern import (
    AssignedWhenEmpty,
    ConsistentIndexes,
    ExpiredMembersLeave,
    OneOwnerInTheLog,
    OrderedEpochs,
    RestoredFromTheLog,
    SessionsRestartOnRequests,
    StoredInTheLog,
    TimersAsNeeded,
    timers_of_members,
    touched_groups,
)
from konvene.sim.world.event import Event, Invariant

KINDS = ("consumer", "consumer-static", "migration")

UNREVOKED = MemberState.UNREVOKED_PARTITIONS
"""State of a member that has to confirm a revocation."""
Unit = tuple[Uuid, int]
"""Topic id and partition."""


# --- M: owners and epochs --------------------------------------------------------------------------


class PartitionsHaveOneOwner(Invariant):
    """M1: no partition is assigned to two members, or assigned to one while another has yet to revoke it.

    M4, M14: the index of owners holds exactly the partitions that members own."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            owners: dict[Unit, str] = {}
            for member in group.members.values():
                both = units(member.current.assigned) & units(member.current.pending_revocation)
                assert not both, f"{name}: {member.member_id} is assigned, and has to revoke, {sorted(both)}"
                for unit in owned_units(member):
                    other = owners.setdefault(unit, member.member_id)
                    assert other == member.member_id, f"{name}: {other} and {member.member_id} own {unit}"
            indexed = {
                (topic, p): owner for topic, by_index in group.owners.items() for p, owner in by_index.items()
            }
            assert indexed == owners, f"{name}: the index of owners is {indexed}, members own {owners}"
            assert all(group.owners.values()), f"{name}: the index of owners has a topic without owners"


class LoggedPartitionsHaveOneOwner(OneOwnerInTheLog[ConsumerGroup]):
    """M1: by the records of current assignments in the log alone, no partition has two owners."""

    group_type = ConsumerGroup
    record_key = ConsumerGroupCurrentMemberAssignmentKey

    def units_of(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Iterable[Unit]:
        topics = (*value.assigned_partitions, *value.partitions_pending_revocation)
        return ((topic.topic_id, p) for topic in topics for p in topic.partitions)


class EpochsAreInOrder(OrderedEpochs[ConsumerGroup]):
    """M2: group epoch >= assignment epoch >= each member epoch, and none of them decreases, except that of a
    member that leaves temporarily."""

    group_type = ConsumerGroup


class EmptyGroupsHaveNoTargets(AssignedWhenEmpty[ConsumerGroup]):
    """M9: the assignment epoch of an empty group is its group epoch, and it has no target assignments."""

    group_type = ConsumerGroup


class StableGroupsAreReconciled(Invariant):
    """M7: a group is Stable exactly if it has members and each is STABLE at the group's epoch. Then each has
    its target as its assignment, except members whose subscription regex is not resolved yet."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            reconciled = group.epoch == group.assignment_epoch and all(
                m.current.state is MemberState.STABLE and m.current.epoch == group.epoch
                for m in group.members.values()
            )
            expected = reconciled and bool(group.members)
            assert (group.state == "Stable") == expected, f"{group!r}, reconciled: {reconciled}"
            if group.state != "Stable":
                continue
            for member_id, member in group.members.items():
                if member.regex and member.regex not in group.regexes:
                    continue
                target, assigned = target_units(group, member_id), units(member.current.assigned)
                assert assigned == target, (
                    f"{group!r}: {member_id} has {sorted(assigned)}, not {sorted(target)}"
                )
                assert not member.current.pending_revocation, (
                    f"{group!r}: {member_id} has a pending revocation"
                )


class IndexesMatchMembers(ConsistentIndexes[ConsumerGroup]):
    """M13: at most one member has a given instance id, and every index of a group equals one rebuilt from its
    members."""

    group_type = ConsumerGroup
    indexes = (
        "instances", "subscribers", "regex_users", "behind", "assignors", "classic_members",
        "classic_protocols",
    )  # fmt: skip


# --- G: the log ------------------------------------------------------------------------------------


class ConsumerGroupsAreStored(StoredInTheLog[ConsumerGroup]):
    """G1: at every moment the log holds a consumer group as it is, with its members in the same order."""

    group_type = ConsumerGroup

    def durable_part(self, group: ConsumerGroup) -> ConsumerGroup:
        return durable_part(group)


class ConsumerGroupsAreRestored(RestoredFromTheLog[ConsumerGroup]):
    """G1, G3: a consumer group is loaded as it was when the previous process ended."""

    group_type = ConsumerGroup

    def durable_part(self, group: ConsumerGroup) -> ConsumerGroup:
        return durable_part(group)


# --- G11, L4: timers -------------------------------------------------------------------------------


class ConsumerTimersMatchState(TimersAsNeeded[ConsumerGroup]):
    """G11, L4: each member has a session timer, and a revocation timer while it has to confirm a revocation.
    A classic member may have a rejoin or sync timer. No other timers are armed."""

    group_type = ConsumerGroup

    def timers_of(self, group: ConsumerGroup) -> tuple[set[TimerKey], set[TimerKey]]:
        return timers_of_members(group, UNREVOKED)


class ConsumerSessionsAreTimed(SessionsRestartOnRequests[ConsumerGroup]):
    """L4: the session of a member restarts with its own requests only, and an accepted heartbeat gives it the
    full timeout."""

    group_type = ConsumerGroup
    api = "ConsumerGroupHeartbeat"
    setting = "consumer.session.timeout.ms"


class ExpiredConsumersLeave(ExpiredMembersLeave[ConsumerGroup]):
    """L4: a session or a rebalance timeout that expires removes its member, and no other."""

    group_type = ConsumerGroup
    unrevoked = UNREVOKED


# --- shared by the invariants of consumer groups --------------------------------------------------


def touched(event: Event) -> Iterator[tuple[str, ConsumerGroup | None, ConsumerGroup]]:
    """Yield the id of each consumer group that an event changed, the group before, if any, and after."""
    return touched_groups(event, ConsumerGroup)


def units(epochs: Epochs) -> set[Unit]:
    """Return the partitions of an assignment."""
    return {(topic, p) for topic, partitions in epochs.items() for p in partitions}


def target_units(group: ConsumerGroup, member_id: str) -> set[Unit]:
    """Return the partitions of a member's target assignment."""
    return {(topic, p) for topic, partitions in group.target_of(member_id).items() for p in partitions}


def owned_units(member: Member) -> set[Unit]:
    """Return the partitions that a member owns: assigned to it, or not revoked yet."""
    return units(member.current.assigned) | units(member.current.pending_revocation)


def durable_part(group: ConsumerGroup) -> ConsumerGroup:
    """Return a copy of the group without the state that a restart may lose."""
    return replace(group, soft=SoftState(), reached_ms={})
