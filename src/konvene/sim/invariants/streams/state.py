"""Invariants of streams groups as they are, live and in the log: tasks, epochs, sessions, timers.

A group is looked at when it changed, and all of them at every look. Who has which task is also read off the
log's records alone, by a book that knows nothing of groups. T: streams groups; what they share with consumer
groups has the number that it has there (M).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.streams.current_assignment import MemberState, Role, Unit
from konvene.groups.streams.group import Member, SoftState, StreamsGroup
from konvene.groups.streams.topology.expressions import expressions
from konvene.records.classic import GroupMetadataKey
from konvene.records.streams import StreamsGroupCurrentMemberAssignmentKey
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

OWES = MemberState.UNREVOKED_TASKS

Task = tuple[str, int]
"""A subtopology's id and a partition."""


# --- T: tasks --------------------------------------------------------------------------------------


class ActiveTasksHaveOneOwner(Invariant):
    """T1: no task is active with two members, or active with one and yet to be given up by another.

    T3: what is assigned to a member it has in one role. And who has what is known exactly as long as it is
    so: who is gone has nothing."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            held: dict[Unit, set[str]] = {}
            for member in group.members.values():
                assigned = member.current.assigned.units()
                tasks = [unit[1:] for unit in assigned]
                assert len(set(tasks)) == len(tasks), f"{name}: {member.member_id} has a task in two roles"
                twice = assigned & member.current.pending_revocation.units()
                assert not twice, f"{name}: {member.member_id} has and gives up {sorted(twice)}"
                for unit in has(member):
                    held.setdefault(unit, set()).add(member.member_id)
            for unit, who in held.items():
                assert unit[0] is not Role.ACTIVE or len(who) == 1, f"{name}: {sorted(who)} run {unit}"
            assert booked(group) == held, f"{name}: noted is {booked(group)}, members have {held}"
            for noted in (group.active, group.standby, group.warmup):
                assert all(noted.values()), f"{name}: a subtopology that nobody has is kept"


class LoggedActiveTasksHaveOneOwner(OneOwnerInTheLog):
    """T1: the same, by the records of current assignments alone."""

    group_type = StreamsGroup
    record_key = StreamsGroupCurrentMemberAssignmentKey
    verb = "run"

    def units_of(self, value: Any) -> Iterable[Task]:
        tasks = (*value.active_tasks, *value.active_tasks_pending_revocation)
        return ((each.subtopology_id, p) for each in tasks for p in each.partitions)


class ProcessesOwnATaskOnce(Invariant):
    """T2: nobody is given a task while another member of its process has it, in any role: its state has one
    place on a disk. A standby, or a warm-up, waits for its own process alone; an active task for everybody.

    A member that comes back as another process takes along what it had; what two of a process have since
    then, one of them may be promoted to."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            there = {(m.process_id, unit[1:]): set[str]() for m in group.members.values() for unit in has(m)}
            for member in group.members.values():
                for unit in has(member):
                    there[member.process_id, unit[1:]].add(member.member_id)
            for member in group.members.values():
                before = was(old, member)
                if before is not None and before.process_id != member.process_id:
                    continue
                for unit in has(member) - (has(before) if before is not None else set()):
                    others = there[member.process_id, unit[1:]] - {member.member_id}
                    if old is not None and before is not None and has_task(before, unit):
                        others -= {m.member_id for m in old.members.values() if has_task(m, unit)}
                    assert not others, (
                        f"{name}: {member.member_id} is given {unit}, which {sorted(others)} of its process"
                        f" {member.process_id} have"
                    )


# --- M: epochs -------------------------------------------------------------------------------------


class StreamsEpochsAreInOrder(OrderedEpochs):
    """M2: of streams groups, group epoch >= assignment epoch >= each member epoch, and none of them
    decreases, except that of a member that leaves temporarily."""

    group_type = StreamsGroup


class ActiveTasksHaveEpochs(Invariant):
    """O1: an active task is of the epoch in which its member was given it, for as long as it has it;
    who left for a while has had it from the beginning."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete or old is None:
                continue
            for member in group.members.values():
                before = was(old, member)
                if before is None or before.current is member.current:
                    continue
                away = member.current.epoch == LEFT_TEMPORARILY
                had = before.current.assigned.active
                for subtopology, epochs in member.current.assigned.active.items():
                    for partition, epoch in epochs.items():
                        since = had.get(subtopology, {}).get(partition, group.assignment_epoch)
                        expected = 0 if away else since
                        assert epoch == expected, (
                            f"{name}: {member.member_id} has {subtopology}-{partition} since {epoch},"
                            f" not {expected}"
                        )


class EmptyStreamsGroupsHaveNoTargets(AssignedWhenEmpty):
    """M9: the assignment of an empty streams group is of the group's epoch, and has no targets; the group is
    not shutting down."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        super().after(event)
        for _, _, group in touched(event):
            if not group.members:
                assert group.soft.shutdown is None, f"{group!r}: it is empty, yet it is to shut down"


class StreamsStateMatchesMembers(Invariant):
    """M7, T10: a group is Empty without members; NotReady while its topology is not found to be whole; then
    Assigning while its epoch has no target; and Stable when every member is, and has its target."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            state = self._expected(group)
            assert group.state == state, f"{group!r} should be {state}"
            if state != "Stable":
                continue
            for member_id, member in group.members.items():
                target, held = units(group.target_of(member_id)), member.current.assigned.units()
                assert held == target, f"{group!r}: {member_id} has {sorted(held)}, not {sorted(target)}"
                assert not member.current.pending_revocation, f"{group!r}: {member_id} gives something up"

    def _expected(self, group: StreamsGroup) -> str:
        if not group.members:
            return "Empty"
        if group.topology is None or group.validated_topology_epoch != group.topology.epoch:
            return "NotReady"
        if group.epoch > group.assignment_epoch:
            return "Assigning"
        done = all(
            m.current.state is MemberState.STABLE and m.current.epoch == group.assignment_epoch
            for m in group.members.values()
        )
        return "Stable" if done else "Reconciling"


class StreamsIndexesMatchMembers(ConsistentIndexes):
    """M13: of streams groups, an instance id has one member, and every index equals one rebuilt from the
    members."""

    group_type = StreamsGroup
    indexes = ("instances", "behind", "active", "standby", "warmup")
    member_tables = ("targets", "reported")


# --- G: the log ------------------------------------------------------------------------------------


class StreamsGroupsAreStored(StoredInTheLog):
    """G1: at every moment the log holds a streams group as it is, with its members in the same order."""

    group_type = StreamsGroup

    def durable_part(self, group: StreamsGroup) -> StreamsGroup:
        return durable_part(group)


class StreamsGroupsAreRestored(RestoredFromTheLog):
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
    """G8, MG4: a group that is of another kind now, or gone, has left no streams record in the log, and a
    streams group none of the classic one that it was; so no loader, whatever compaction kept, finds what a
    group is not any more (KAFKA-20254)."""

    def __init__(self) -> None:
        self.left: dict[str, set[Any]] = {}
        self.classic: set[str] = set()

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.left.clear()
            self.classic.clear()
            for batch in event.runtime.log.batches:
                self._write(batch.records)
        elif event.batch is not None:
            self._write(event.batch.records)
            for name in event.before.groups.keys() | event.after.groups.keys():
                group = event.after.groups.get(name)
                left = self.left.get(name)
                if isinstance(group, StreamsGroup):
                    assert name not in self.classic, f"{group!r}: in the log it is a classic one as well"
                else:
                    assert not left, f"{group!r}: in the log is {left}"

    def _write(self, records: Any) -> None:
        for record in records:
            key: Any = getattr(record, "key", None)
            if type(key).__name__.startswith("StreamsGroup"):
                keys = self.left.setdefault(key.group_id, set())
                (keys.discard if record.value is None else keys.add)(key)
            elif isinstance(key, GroupMetadataKey):
                (self.classic.discard if record.value is None else self.classic.add)(key.group)


# --- G11, L4: timers -------------------------------------------------------------------------------


class StreamsTimersMatchState(TimersAsNeeded):
    """G11, L4: each member has a session, and a rebalance timeout while it has to confirm a revocation. A
    classic member may be waited for until it joins or syncs.

    A timer ends the delay of the first assignment, and one resolves subscription expressions again."""

    group_type = StreamsGroup

    def timers_of(self, group: StreamsGroup) -> tuple[set[Any], set[Any]]:
        required, allowed = timers_of_members(group, OWES)
        name = group.group_id
        if group.soft.delayed:
            required.add(("initial-delay", name))
        if group.members and group.soft.resolved is not None and not group.soft.resolving:
            required.add(("expressions", name))
        if expressions(group.topology):
            allowed.add(("expressions", name))  # It may expire without anything to resolve.
        return required, allowed


class StreamsSessionsAreTimed(SessionsRestartOnRequests):
    """L4: of streams groups, the session of a member restarts with its own requests only, and an accepted
    heartbeat gives it the full timeout."""

    group_type = StreamsGroup
    api = "StreamsGroupHeartbeat"
    setting = "streams.session.timeout.ms"


class ExpiredStreamsMembersLeave(ExpiredMembersLeave):
    """L4: of streams groups, a session or a rebalance timeout that expires removes its member, and no
    other."""

    group_type = StreamsGroup
    owes = OWES


# --- shared by the invariants of streams groups ---------------------------------------------------


def touched(event: Event) -> Iterator[tuple[str, StreamsGroup | None, StreamsGroup]]:
    """Yield the id of each streams group that an event changed, the group before, if any, and after."""
    return touched_groups(event, StreamsGroup)


def matched_topics(group: StreamsGroup, topics: Topics) -> dict[str, list[str]] | None:
    """What the group's expressions were found to match, of the topics that there are; None: nobody knows."""
    wanted, resolved = expressions(group.topology), group.soft.resolved
    if not wanted:
        return {}
    if resolved is None or not resolved.matches.keys() >= set(wanted):
        return None
    there = topics.by_name
    return {each: [name for name in sorted(resolved.matches[each]) if name in there] for each in wanted}


def units(tasks: MemberAssignment) -> set[Unit]:
    """Tasks in their roles."""
    return {
        (role, subtopology, partition)
        for role, some in zip(Role, (tasks.active, tasks.standby, tasks.warmup), strict=True)
        for subtopology, partitions in some.items()
        for partition in partitions
    }


def has(member: Member) -> set[Unit]:
    """What a member has: assigned, or not given up yet."""
    return member.current.assigned.units() | member.current.pending_revocation.units()


def has_task(member: Member, unit: Unit) -> bool:
    """Whether it has the task in whatever role."""
    return any(unit[1:] == other[1:] for other in has(member))


def was(old: StreamsGroup | None, member: Member) -> Member | None:
    """The member before, maybe under another id: a static one is who it was."""
    if old is None:
        return None
    return old.static_member(member.instance_id) or old.members.get(member.member_id)


def new_causes(event: Event, old: StreamsGroup, group: StreamsGroup) -> tuple[Any, ...]:
    """What a decision says why the epoch moves: in the story of what is under way, or in that told."""
    before = len(old.soft.trace.causes) if old.soft.trace is not None else 0
    told = (
        [row.value.causes for row in event.outcome.why if row.group_id == group.group_id]
        if (event.outcome is not None)
        else []
    )
    now = told[-1] if told else group.soft.trace.causes if group.soft.trace is not None else ()
    return tuple(now[before:]) if group.epoch > old.epoch else ()


def booked(group: StreamsGroup) -> dict[Unit, set[str]]:
    """Who has what, as the group notes it."""
    noted: dict[Unit, set[str]] = {
        (Role.ACTIVE, subtopology, partition): {who}
        for subtopology, owners in group.active.items()
        for partition, who in owners.items()
    }
    for role, holders in ((Role.STANDBY, group.standby), (Role.WARMUP, group.warmup)):
        for subtopology, there in holders.items():
            for partition, some in there.items():
                noted[role, subtopology, partition] = set(some)
    return noted


def durable_part(group: StreamsGroup) -> StreamsGroup:
    """All but what a restart may forget."""
    return replace(group, soft=SoftState(), reached_ms={}, reported={})
