"""Invariants of streams groups as they are, live and in the log: tasks, epochs, sessions, timers.

A group is looked at when it changed, and all of them at every look. Who has which task is also read off the
log's records alone, by a book that knows nothing of groups. T: streams groups; what they share with consumer
groups has the number that it has there (M).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.streams.current_assignment import MemberState, Role, Unit
from konvene.groups.streams.group import Member, SoftState, StreamsGroup
from konvene.groups.streams.topology.expressions import expressions
from konvene.records.classic import GroupMetadataKey
from konvene.records.streams import StreamsGroupCurrentMemberAssignmentKey
from konvene.shard.image import Topics
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

KINDS = ("streams", "streams-migration")

LEFT_FOR_A_WHILE = -2
OWES = MemberState.UNREVOKED_TASKS

Task = tuple[str, int]
"""A subtopology's id and a partition."""


# --- T: tasks --------------------------------------------------------------------------------------


class TasksHaveOneActive(Invariant):
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


class TheLogHasOneActive(Invariant):
    """T1: the same, read off the records of what members have, and of nothing else."""

    def __init__(self) -> None:
        self.book: dict[str, dict[str, set[Task]]] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.book.clear()
            for batch in event.runtime.log.batches:
                self._write(batch.records)
        elif event.batch is not None:
            self._write(event.batch.records)
        for name, _, group in touched(event):
            runs: dict[Task, str] = {}
            for member_id, tasks in self.book.get(name, {}).items():
                for task in tasks:
                    other = runs.setdefault(task, member_id)
                    assert other == member_id, f"{name}: by the log {other} and {member_id} run {task}"
            unknown = set(runs.values()) - group.members.keys()
            assert not unknown, f"{name}: by the log {sorted(unknown)} run something, and are no members"

    def _write(self, records: Any) -> None:
        for record in records:
            key = getattr(record, "key", None)
            if isinstance(key, StreamsGroupCurrentMemberAssignmentKey):
                of_group = self.book.setdefault(key.group_id, {})
                if record.value is None:
                    of_group.pop(key.member_id, None)
                    continue
                told = (*record.value.active_tasks, *record.value.active_tasks_pending_revocation)
                of_group[key.member_id] = {(t.subtopology_id, p) for t in told for p in t.partitions}


class ProcessesHaveATaskOnce(Invariant):
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


class TaskEpochsAreInOrder(Invariant):
    """M2: of streams groups, the group's epoch is not below its assignment's, nor that below any member's;
    and none of them falls, but that of a member that leaves for a while."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            assert group.epoch >= group.assignment_epoch, f"{group!r}: assigned for {group.assignment_epoch}"
            for member in group.members.values():
                epoch = member.current.epoch
                assert epoch <= group.assignment_epoch, (
                    f"{name}: {member.member_id} is at {epoch}, the assignment at {group.assignment_epoch}"
                )
                assert epoch >= 0 or epoch == LEFT_FOR_A_WHILE, f"{name}: {member.member_id} is at {epoch}"
            if old is None or event.kind == "loaded":
                continue
            assert group.epoch >= old.epoch, f"{name} fell from {old.epoch} to {group.epoch}"
            assert group.assignment_epoch >= old.assignment_epoch, f"{name}: the assignment's epoch fell"
            for member_id, member in group.members.items():
                before = old.members.get(member_id)
                now = member.current.epoch
                if before is not None and now != LEFT_FOR_A_WHILE:
                    assert now >= before.current.epoch, (
                        f"{name}: {member_id} fell from {before.current.epoch} to {now}"
                    )


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
                away = member.current.epoch == LEFT_FOR_A_WHILE
                had = before.current.assigned.active
                for subtopology, epochs in member.current.assigned.active.items():
                    for partition, epoch in epochs.items():
                        since = had.get(subtopology, {}).get(partition, group.assignment_epoch)
                        expected = 0 if away else since
                        assert epoch == expected, (
                            f"{name}: {member.member_id} has {subtopology}-{partition} since {epoch},"
                            f" not {expected}"
                        )


class EmptyStreamsGroupsAreAssigned(Invariant):
    """M9: a streams group that nobody is in has nothing to be assigned: its assignment is of its own
    epoch."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            if not group.members:
                assert group.assignment_epoch == group.epoch, (
                    f"{group!r}: the assignment is of {group.assignment_epoch}"
                )
                assert not group.targets, f"{group!r}: there are targets for {sorted(group.targets)}"
                assert group.soft.shutdown is None, f"{group!r}: nobody is there, and it is to shut down"


class StateSaysWhatIsSo(Invariant):
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


class StreamsInstancesAreMembers(Invariant):
    """M13: an instance id is one member's. What a group notes of its members is what can be counted."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            named = {m.instance_id: i for i, m in group.members.items() if m.instance_id is not None}
            static = sum(m.instance_id is not None for m in group.members.values())
            assert static == len(named), f"{name}: two members of one instance id: {named}"
            again = StreamsGroup(name)
            for member in group.members.values():
                again.put(member)
            again.set_assignment_epoch(group.assignment_epoch, 0)
            for noun in ("instances", "behind", "active", "standby", "warmup"):
                ours, counted = getattr(group, noun), getattr(again, noun)
                assert ours == counted, f"{name}: {noun} are {ours}, counted {counted}"
            for noun, known in (("targets", group.targets), ("offsets", group.reported)):
                strangers = known.keys() - group.members.keys()
                assert not strangers, f"{name}: there are {noun} of {sorted(strangers)}, who are no members"


# --- G: the log ------------------------------------------------------------------------------------


class StreamsGroupsAreStored(Invariant):
    """G1: a streams group is in the log as it is, at every moment; in the same order."""

    def after(self, event: Event) -> None:
        stored = event.runtime.shadow.groups
        for name, _, group in touched(event):
            told = stored.get(name)
            assert isinstance(told, StreamsGroup), f"{group!r} is {told!r} in the log"
            live, log = durable_part(group), durable_part(told)
            assert live == log, f"{group!r}: live {live}, in the log {log}"
            assert list(group.members) == list(told.members), f"{group!r}: members in another order"


class StreamsGroupsAreRestored(Invariant):
    """G1, G3: a streams group is loaded as it was when the last shard ended. T13: offsets of tasks, and who
    asked for a shutdown, are not in the log."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded":
            return
        for group in event.after.groups.values():
            if isinstance(group, StreamsGroup):
                assert group.soft == SoftState(), f"{group!r} was loaded with {group.soft}"
        if event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            again = event.after.groups.get(name)
            if isinstance(group, StreamsGroup):
                assert isinstance(again, StreamsGroup), f"{group!r} is loaded as {again!r}"
                past, loaded = durable_part(group), durable_part(again)
                assert loaded == past, f"{name} was {past}, loaded it is {loaded}"


class NothingIsLeftBehind(Invariant):
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


class TimersOfStreamsHaveAReason(Invariant):
    """G11, L4: each member has its session, and who owes a revocation its time for that; nobody else has. Who
    speaks the classic protocol may have been told to join, or to ask for its assignment.

    While the first target is put off there is a timer that ends that."""

    def after(self, event: Event) -> None:
        armed: Mapping[Any, float] = event.runtime.coordinator.deadlines
        for name, old, group in touched(event):
            wanted: set[Any] = {("session", name, member_id) for member_id in group.members}
            for member_id, member in group.members.items():
                if member.classic is None and member.current.state is OWES and member.current.epoch >= 0:
                    wanted.add(("revocation", name, member_id))
            if group.soft.delayed:
                wanted.add(("initial-delay", name))
            if group.members and group.soft.resolved is not None and not group.soft.resolving:
                wanted.add(("expressions", name))
            forgotten = wanted - armed.keys()
            assert not forgotten, f"{group!r}: timers were forgotten: {sorted(forgotten)}"
            ids = {*group.members, *(old.members if old is not None else ())}
            kinds = ("session", "revocation", "rejoin", "resync")
            there = {(kind, name, i) for kind in kinds for i in ids} & armed.keys()
            if event.is_complete:
                there = {key for key in armed if len(key) > 1 and key[1] == name}
            if expressions(group.topology):
                there.discard(("expressions", name))  # It may run, and find that there is nothing to do.
            classic = [i for i, m in group.members.items() if m.classic is not None]
            there -= {(kind, name, i) for kind in ("rejoin", "resync") for i in classic}
            leaked = there - wanted
            assert not leaked, f"{group!r}: timers without a reason: {sorted(leaked)}"


class StreamsSessionsAreOnesOwn(Invariant):
    """L4: of streams groups, a member's session begins anew when it is heard, and by nothing else: neither
    when others are heard, nor when the group moves. A heartbeat that is accepted gives it all of its
    session."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, str], float] = {}

    def after(self, event: Event) -> None:
        if event.kind in ("loaded", "append failed"):
            self.ends.clear()
        if event.kind == "append failed":
            return
        for name, group in event.after.groups.items():
            if not isinstance(group, StreamsGroup):
                continue
            old = event.before.groups.get(name)
            heard = who_asks(event)
            for member_id in group.members:
                at = event.runtime.coordinator.deadlines.get(("session", name, member_id))
                assert at is not None, f"{group!r}: {member_id} has no session"
                known = self.ends.get((name, member_id))
                stayed = isinstance(old, StreamsGroup) and member_id in old.members
                again = event.kind == "timer" and event.outcome is None
                if known is not None and stayed and member_id not in heard and not again:
                    assert at == known, f"{group!r}: {member_id} was not heard, its session was moved"
                self.ends[name, member_id] = at
        if event.is_request("StreamsGroupHeartbeat") and event.error is Errors.NONE:
            self._whole(event)

    def _whole(self, event: Event) -> None:
        said: Any = event.request
        if said.member_epoch < 0:
            return
        due_ms = event.runtime.due_ms(("session", said.group_id, said.member_id))
        told_ms = event.context.group_configs.of(said.group_id)["streams.session.timeout.ms"]
        assert due_ms == told_ms, f"{said.member_id} was heard, and has {due_ms} ms of its session"


class WhoIsSilentLeaves(Invariant):
    """L4: of streams groups, when a session ends, or the time to give something up, the member is out; and
    nobody else is."""

    def after(self, event: Event) -> None:
        if event.kind != "timer" or event.outcome is None or len(event.key) < 3:
            return
        kind, name, member_id = event.key
        old, group = event.before.groups.get(name), event.after.groups.get(name)
        if not isinstance(old, StreamsGroup):
            return
        gone = old.members.keys() - (set(group.members) if group is not None else set())
        owes = kind != "revocation" or old.members[member_id].current.state is OWES
        assert gone == ({member_id} if owes else set()), f"{event.key}: {sorted(gone)} are out of {old!r}"


# --- what they all ask -----------------------------------------------------------------------------


def touched(event: Event) -> Iterator[tuple[str, StreamsGroup | None, StreamsGroup]]:
    """The streams groups that an event changed, as they were, if they were some, and as they are."""
    if not (event.changed or event.is_complete):
        return
    for name, group in event.after.groups.items():
        if isinstance(group, StreamsGroup):
            old = event.before.groups.get(name)
            yield name, old if isinstance(old, StreamsGroup) else None, group


def who_asks(event: Event) -> set[str]:
    """The member ids that a request is of, also one that it was given only now."""
    if event.request is None:
        return set()
    answer: Any = event.answer
    return {getattr(event.request, "member_id", ""), str(getattr(answer, "member_id", ""))}


def matched(group: StreamsGroup, topics: Topics) -> dict[str, list[str]] | None:
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
    before = len(old.soft.story.causes) if old.soft.story is not None else 0
    told = (
        [row.story.causes for row in event.outcome.why if row.group_id == group.group_id]
        if (event.outcome is not None)
        else []
    )
    now = told[-1] if told else group.soft.story.causes if group.soft.story is not None else ()
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
