"""Invariants of the state of streams groups, live and in the log: tasks, epochs, sessions, timers.

A group is checked when it changed, and all groups at every audit. Ownership of active tasks is also derived
from the records of the log alone. T: streams groups; rules of consumer groups keep their numbers (M).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.streams.current_assignment import MemberState, Role, Unit
from konvene.groups.streams.group import Member, SoftState, StreamsGroup
from konvene.groups.streams.topology.expressions import expressions
from konvene.records.audit import Cause
from konvene.records.classic import GroupMetadataKey
from konvene.records.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from konvene.shard.contract import TimerKey
from konvene.shard.image import Topics
from konvene.sim.invariants.modern import (
    LEFT_TEMPORARILY,
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

KINDS = ("streams", "streams-migration")

UNREVOKED = MemberState.UNREVOKED_TASKS
"""State of a member that has to confirm a revocation."""

Task = tuple[str, int]
"""Subtopology id and partition."""


# --- T: tasks --------------------------------------------------------------------------------------


class ActiveTasksHaveOneOwner(Invariant):
    """T1: no task is active at two members, or active at one while another has yet to revoke it.

    T3: a member has each of its tasks in one role. The indexes of owners hold exactly the tasks that members
    own."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            owners: dict[Unit, set[str]] = {}
            for member in group.members.values():
                assigned = member.current.assigned.units()
                tasks = [unit[1:] for unit in assigned]
                assert len(set(tasks)) == len(tasks), f"{name}: {member.member_id} has a task in two roles"
                both = assigned & member.current.pending_revocation.units()
                assert not both, f"{name}: {member.member_id} is assigned, and has to revoke, {sorted(both)}"
                for unit in owned_units(member):
                    owners.setdefault(unit, set()).add(member.member_id)
            for unit, ids in owners.items():
                assert unit[0] is not Role.ACTIVE or len(ids) == 1, f"{name}: {sorted(ids)} run {unit}"
            indexed = indexed_owners(group)
            assert indexed == owners, f"{name}: the indexes of owners are {indexed}, members own {owners}"
            for index in (group.active, group.standby, group.warmup):
                assert all(index.values()), f"{name}: an index has a subtopology without owners"


class LoggedActiveTasksHaveOneOwner(OneOwnerInTheLog[StreamsGroup]):
    """T1: by the records of current assignments in the log alone, no active task has two owners."""

    group_type = StreamsGroup
    record_key = StreamsGroupCurrentMemberAssignmentKey
    verb = "run"

    def units_of(self, value: StreamsGroupCurrentMemberAssignmentValue) -> Iterable[Task]:
        tasks = (*value.active_tasks, *value.active_tasks_pending_revocation)
        return ((each.subtopology_id, p) for each in tasks for p in each.partitions)


class ProcessesOwnATaskOnce(Invariant):
    """T2: no member gets a task that another member of its process owns, in any role: they would share its
    state directory. A standby or warm-up task waits for its own process only, an active task for all members.

    A member that returns as another process keeps its tasks; if two members of a process own a task since
    then, one of them may be promoted."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            owners: dict[tuple[str, Task], set[str]] = {}
            for member in group.members.values():
                for unit in owned_units(member):
                    owners.setdefault((member.process_id, unit[1:]), set()).add(member.member_id)
            for member in group.members.values():
                before = previous_member(old, member)
                if before is not None and before.process_id != member.process_id:
                    continue
                for unit in owned_units(member) - (owned_units(before) if before is not None else set()):
                    others = owners[member.process_id, unit[1:]] - {member.member_id}
                    if old is not None and before is not None and owns_task(before, unit):
                        others -= {m.member_id for m in old.members.values() if owns_task(m, unit)}
                    assert not others, (
                        f"{name}: {member.member_id} gets {unit}, which {sorted(others)} of its process"
                        f" {member.process_id} own"
                    )


# --- M: epochs -------------------------------------------------------------------------------------


class StreamsEpochsAreInOrder(OrderedEpochs[StreamsGroup]):
    """M2: in a streams group, group epoch >= assignment epoch >= each member epoch, and none of them
    decreases, except that of a member that leaves temporarily."""

    group_type = StreamsGroup


class ActiveTasksHaveEpochs(Invariant):
    """O1: an active task keeps the epoch in which its member got it, for as long as the member has it; while
    the member is temporarily absent the epoch is 0."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete or old is None:
                continue
            for member in group.members.values():
                before = previous_member(old, member)
                if before is not None and before.current is not member.current:
                    self._check_member(name, group, before, member)

    def _check_member(self, name: str, group: StreamsGroup, before: Member, member: Member) -> None:
        absent = member.current.epoch == LEFT_TEMPORARILY
        previous = before.current.assigned.active
        for subtopology, epochs in member.current.assigned.active.items():
            for partition, epoch in epochs.items():
                since = previous.get(subtopology, {}).get(partition, group.assignment_epoch)
                expected = 0 if absent else since
                assert epoch == expected, (
                    f"{name}: {member.member_id} has {subtopology}-{partition} since {epoch}, not {expected}"
                )


class EmptyStreamsGroupsHaveNoTargets(AssignedWhenEmpty[StreamsGroup]):
    """M9: the assignment epoch of an empty streams group is its group epoch; it has no target assignments and
    no requested shutdown."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        super().after(event)
        for _, _, group in touched(event):
            if not group.members:
                assert group.soft.shutdown is None, f"{group!r} is empty, but is shutting down"


class StreamsStateMatchesMembers(Invariant):
    """M7, T10: a group is Empty without members; NotReady while its topology is not validated; Assigning
    while its epoch has no target; Stable when every member is, and has its target; Reconciling otherwise."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            state = self._expected_state(group)
            assert group.state == state, f"{group!r} should be {state}"
            if state != "Stable":
                continue
            for member_id, member in group.members.items():
                target, assigned = units(group.target_of(member_id)), member.current.assigned.units()
                assert assigned == target, (
                    f"{group!r}: {member_id} has {sorted(assigned)}, not {sorted(target)}"
                )
                assert not member.current.pending_revocation, (
                    f"{group!r}: {member_id} has a pending revocation"
                )

    def _expected_state(self, group: StreamsGroup) -> str:
        if not group.members:
            return "Empty"
        if group.topology is None or group.validated_topology_epoch != group.topology.epoch:
            return "NotReady"
        if group.epoch > group.assignment_epoch:
            return "Assigning"
        reconciled = all(
            m.current.state is MemberState.STABLE and m.current.epoch == group.assignment_epoch
            for m in group.members.values()
        )
        return "Stable" if reconciled else "Reconciling"


class StreamsIndexesMatchMembers(ConsistentIndexes[StreamsGroup]):
    """M13: in a streams group, at most one member has a given instance id, and every index equals one rebuilt
    from the members."""

    group_type = StreamsGroup
    indexes = ("instances", "behind", "active", "standby", "warmup")
    member_tables = ("targets", "reported")


# --- G: the log ------------------------------------------------------------------------------------


class StreamsGroupsAreStored(StoredInTheLog[StreamsGroup]):
    """G1: at every moment the log holds a streams group as it is, with its members in the same order."""

    group_type = StreamsGroup

    def durable_part(self, group: StreamsGroup) -> StreamsGroup:
        return durable_part(group)


class StreamsGroupsAreRestored(RestoredFromTheLog[StreamsGroup]):
    """G1, G3: a streams group is loaded as it was when the previous process ended. T13: task offsets and
    shutdown requests are not in the log."""

    group_type = StreamsGroup

    def durable_part(self, group: StreamsGroup) -> StreamsGroup:
        return durable_part(group)

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            for group in event.after.groups.values():
                if isinstance(group, StreamsGroup):
                    assert group.soft == SoftState(), f"{group!r} was loaded with {group.soft}"
        super().after(event)


class ConversionsLeaveNoRecords(Invariant):
    """G8, MG4: the log has no streams records of a group that is of another type or deleted, and no classic
    record of a streams group; so a loader never restores an earlier type, whatever compaction keeps
    (KAFKA-20254)."""

    def __init__(self) -> None:
        self.streams_keys: dict[str, set[Hashable]] = {}
        """By group: the keys of streams records that have a value in the log."""
        self.classic: set[str] = set()
        """Groups with a classic record."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.streams_keys.clear()
            self.classic.clear()
            for batch in event.runtime.log.batches:
                self._replay(batch.records)
        elif event.batch is not None:
            self._replay(event.batch.records)
            for name in event.before.groups.keys() | event.after.groups.keys():
                group = event.after.groups.get(name)
                if isinstance(group, StreamsGroup):
                    assert name not in self.classic, f"{group!r} has a classic record in the log"
                else:
                    keys = self.streams_keys.get(name)
                    assert not keys, f"{name} is {group!r}, but the log has {keys}"

    def _replay(self, records: Iterable[Any]) -> None:
        for record in records:
            key: Any = getattr(record, "key", None)
            if type(key).__name__.startswith("StreamsGroup"):
                keys = self.streams_keys.setdefault(key.group_id, set())
                (keys.discard if record.value is None else keys.add)(key)
            elif isinstance(key, GroupMetadataKey):
                (self.classic.discard if record.value is None else self.classic.add)(key.group)


# --- G11, L4: timers -------------------------------------------------------------------------------


class StreamsTimersMatchState(TimersAsNeeded[StreamsGroup]):
    """G11, L4: each member has a session timer, and a revocation timer while it has to confirm a revocation.
    A classic member may have a rejoin or sync timer.

    A group has a timer while its first assignment is delayed, and one to resolve the regular expressions of
    its topology again."""

    group_type = StreamsGroup

    def timers_of(self, group: StreamsGroup) -> tuple[set[TimerKey], set[TimerKey]]:
        required, allowed = timers_of_members(group, UNREVOKED)
        name = group.group_id
        if group.soft.delayed:
            required.add(("initial-delay", name))
        if group.members and group.soft.resolved is not None and not group.soft.resolving:
            required.add(("expressions", name))
        if expressions(group.topology):
            allowed.add(("expressions", name))  # It may expire when no expression has to be resolved.
        return required, allowed


class StreamsSessionsAreTimed(SessionsRestartOnRequests[StreamsGroup]):
    """L4: in a streams group, the session of a member restarts with its own requests only, and an accepted
    heartbeat gives it the full timeout."""

    group_type = StreamsGroup
    api = "StreamsGroupHeartbeat"
    setting = "streams.session.timeout.ms"


class ExpiredStreamsMembersLeave(ExpiredMembersLeave[StreamsGroup]):
    """L4: in a streams group, a session or a rebalance timeout that expires removes its member, and no
    other."""

    group_type = StreamsGroup
    unrevoked = UNREVOKED


# --- shared by the invariants of streams groups ---------------------------------------------------


def touched(event: Event) -> Iterator[tuple[str, StreamsGroup | None, StreamsGroup]]:
    """Yield the id of each streams group that an event changed, the group before, if any, and after."""
    return touched_groups(event, StreamsGroup)


def matched_topics(group: StreamsGroup, topics: Topics) -> dict[str, list[str]] | None:
    """Return the existing topics that each expression of the topology matches; None if the expressions are
    not resolved."""
    wanted, resolved = expressions(group.topology), group.soft.resolved
    if not wanted:
        return {}
    if resolved is None or not resolved.matches.keys() >= set(wanted):
        return None
    existing = topics.by_name
    return {each: [name for name in sorted(resolved.matches[each]) if name in existing] for each in wanted}


def units(tasks: MemberAssignment) -> set[Unit]:
    """Return the tasks of a target assignment, with their roles."""
    return {
        (role, subtopology, partition)
        for role, by_subtopology in zip(Role, (tasks.active, tasks.standby, tasks.warmup), strict=True)
        for subtopology, partitions in by_subtopology.items()
        for partition in partitions
    }


def flat_tasks(by_subtopology: Mapping[str, Iterable[int]]) -> set[Task]:
    """Return the tasks of a mapping from subtopology id to partitions, as pairs of both."""
    return {(name, p) for name, partitions in by_subtopology.items() for p in partitions}


def owned_units(member: Member) -> set[Unit]:
    """Return the tasks that a member owns, with their roles: assigned to it, or not revoked yet."""
    return member.current.assigned.units() | member.current.pending_revocation.units()


def owns_task(member: Member, unit: Unit) -> bool:
    """Return True if the member owns the task, in any role."""
    return any(unit[1:] == other[1:] for other in owned_units(member))


def previous_member(old: StreamsGroup | None, member: Member) -> Member | None:
    """Return the member as it was in the group `old`, before an event; None if it was not in it. A static
    member is found by its instance id, because its member id may have changed."""
    if old is None:
        return None
    return old.static_member(member.instance_id) or old.members.get(member.member_id)


def new_causes(event: Event, old: StreamsGroup, group: StreamsGroup) -> tuple[Cause, ...]:
    """Return the causes that a decision added when it bumped the group epoch: those in the trace of the
    rebalance that it completed, or else in the current trace."""
    if group.epoch <= old.epoch:
        return ()
    reported_before = len(old.soft.trace.causes) if old.soft.trace is not None else 0
    completed = [
        rebalance.value.causes
        for rebalance in (event.outcome.why if event.outcome is not None else ())
        if rebalance.group_id == group.group_id
    ]
    if completed:
        return tuple(completed[-1][reported_before:])
    return tuple(group.soft.trace.causes[reported_before:]) if group.soft.trace is not None else ()


def indexed_owners(group: StreamsGroup) -> dict[Unit, set[str]]:
    """Return the ids of the owners of each task and role, as the indexes of the group list them."""
    indexed: dict[Unit, set[str]] = {
        (Role.ACTIVE, subtopology, partition): {owner}
        for subtopology, owners in group.active.items()
        for partition, owner in owners.items()
    }
    for role, index in ((Role.STANDBY, group.standby), (Role.WARMUP, group.warmup)):
        for subtopology, by_partition in index.items():
            for partition, ids in by_partition.items():
                indexed[role, subtopology, partition] = set(ids)
    return indexed


def durable_part(group: StreamsGroup) -> StreamsGroup:
    """Return a copy of the group without the state that a restart may lose."""
    return replace(group, soft=SoftState(), reached_ms={}, reported={})
