"""Invariants of consumer groups as they are, live and in the log: owners, epochs, sessions, timers.

A group is looked at when it changed, and all of them at every look. Who owns what is also read off the log's
records alone, by a book that knows nothing of groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.consumer.current_assignment import Epochs, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, SoftState
from konvene.records.consumer import ConsumerGroupCurrentMemberAssignmentKey
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

KINDS = ("consumer", "consumer-static", "migration")

LEFT_FOR_A_WHILE = -2
Unit = tuple[Uuid, int]


# --- M: owners and epochs --------------------------------------------------------------------------


class PartitionsHaveOneOwner(Invariant):
    """M1: no partition is assigned to two members, or assigned to one and yet to be given up by another.

    M4, M14: an owner is known for it exactly as long as it has one, and who is gone owns nothing."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            owners: dict[Unit, str] = {}
            for member in group.members.values():
                twice = units(member.current.assigned) & units(member.current.pending_revocation)
                assert not twice, f"{name}: {member.member_id} has and gives up {sorted(twice)}"
                for unit in has(member):
                    other = owners.setdefault(unit, member.member_id)
                    assert other == member.member_id, f"{name}: {other} and {member.member_id} own {unit}"
            booked = {(t, p): who for t, held in group.owners.items() for p, who in held.items()}
            assert booked == owners, f"{name}: owners are {booked}, members have {owners}"
            assert all(group.owners.values()), f"{name}: a topic without owners is kept"


class TheLogHasOneOwner(Invariant):
    """M1: the same, read off the records of what members have, and of nothing else."""

    def __init__(self) -> None:
        self.book: dict[str, dict[str, set[Unit]]] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.book.clear()
            for batch in event.runtime.log.batches:
                self._write(batch.records)
        elif event.batch is not None:
            self._write(event.batch.records)
        for name, _, group in touched(event):
            owners: dict[Unit, str] = {}
            for member_id, held in self.book.get(name, {}).items():
                for unit in held:
                    other = owners.setdefault(unit, member_id)
                    assert other == member_id, f"{name}: by the log {other} and {member_id} own {unit}"
            unknown = set(owners.values()) - group.members.keys()
            assert not unknown, f"{name}: by the log {sorted(unknown)} own something, and are no members"

    def _write(self, records: Any) -> None:
        for record in records:
            key = getattr(record, "key", None)
            if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
                of_group = self.book.setdefault(key.group_id, {})
                if record.value is None:
                    of_group.pop(key.member_id, None)
                    continue
                told = (*record.value.assigned_partitions, *record.value.partitions_pending_revocation)
                of_group[key.member_id] = {(t.topic_id, p) for t in told for p in t.partitions}


class EpochsAreInOrder(Invariant):
    """M2: the group's epoch is not below its assignment's, nor that below any member's; and none of them
    falls, but that of a member that leaves for a while."""

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


class EmptyGroupsAreAssigned(Invariant):
    """M9: a group that nobody is in has nothing to be assigned: its assignment is of its own epoch."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            if not group.members:
                assert group.assignment_epoch == group.epoch, (
                    f"{group!r}: the assignment is of {group.assignment_epoch}"
                )
                assert not group.targets, f"{group!r}: there are targets for {sorted(group.targets)}"


class StableMeansDone(Invariant):
    """M7: a group is stable when every member is, at the group's epoch, and has what it is meant to have; but
    for who reads by an expression that nobody has looked at yet."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            done = group.epoch == group.assignment_epoch and all(
                m.current.state is MemberState.STABLE and m.current.epoch == group.epoch
                for m in group.members.values()
            )
            assert (group.state == "Stable") == (done and bool(group.members)), f"{group!r}, done: {done}"
            if group.state != "Stable":
                continue
            for member_id, member in group.members.items():
                if member.regex and member.regex not in group.regexes:
                    continue
                target = {(t, p) for t, some in group.targets.get(member_id, {}).items() for p in some}
                held = units(member.current.assigned)
                assert held == target, f"{group!r}: {member_id} has {sorted(held)}, not {sorted(target)}"
                assert not member.current.pending_revocation, f"{group!r}: {member_id} gives something up"


class NamesAreMembers(Invariant):
    """M13: an instance id is one member's. What a group counts of its members is what can be counted."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            named = {m.instance_id: i for i, m in group.members.items() if m.instance_id is not None}
            static = sum(m.instance_id is not None for m in group.members.values())
            assert static == len(named), f"{name}: two members of one instance id: {named}"
            again = ConsumerGroup(name)
            for member in group.members.values():
                again.put(member)
            again.set_assignment_epoch(group.assignment_epoch, 0)
            for noun in COUNTED:
                ours, counted = getattr(group, noun), getattr(again, noun)
                assert ours == counted, f"{name}: {noun} are {ours}, counted {counted}"
            strangers = group.targets.keys() - group.members.keys()
            assert not strangers, f"{name}: there are targets for {sorted(strangers)}, who are no members"


COUNTED = (
    "instances", "subscribers", "regex_users", "behind", "assignors", "classic_members", "classic_protocols",
)  # fmt: skip


# --- G: the log ------------------------------------------------------------------------------------


class GroupsAreStored(Invariant):
    """G1: a consumer group is in the log as it is, at every moment; in the same order."""

    def after(self, event: Event) -> None:
        stored = event.runtime.shadow.groups
        for name, _, group in touched(event):
            told = stored.get(name)
            assert isinstance(told, ConsumerGroup), f"{group!r} is {told!r} in the log"
            live, log = durable_part(group), durable_part(told)
            assert live == log, f"{group!r}: live {live}, in the log {log}"
            assert list(group.members) == list(told.members), f"{group!r}: members in another order"


class GroupsAreRestored(Invariant):
    """G1, G3: a consumer group is loaded as it was when the last shard ended."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            again = event.after.groups.get(name)
            if isinstance(group, ConsumerGroup):
                assert isinstance(again, ConsumerGroup), f"{group!r} is loaded as {again!r}"
                was, loaded = durable_part(group), durable_part(again)
                assert loaded == was, f"{name} was {was}, loaded it is {loaded}"


# --- G11, L4: timers -------------------------------------------------------------------------------


class TimersOfConsumersHaveAReason(Invariant):
    """G11, L4: each member has its session, and who owes a revocation its time for that; nobody else has. Who
    speaks the classic protocol may have been told to join, or to ask for its assignment."""

    def after(self, event: Event) -> None:
        armed: Mapping[Any, float] = event.runtime.coordinator.deadlines
        for name, old, group in touched(event):
            wanted, allowed = timers_of(group)
            forgotten = wanted - armed.keys()
            assert not forgotten, f"{group!r}: timers were forgotten: {sorted(forgotten)}"
            if event.is_complete:
                there = {key for key in armed if len(key) > 1 and key[1] == name}
            else:
                ids = {*group.members, *(old.members if old is not None else ())}
                kinds = ("session", "revocation", "rejoin", "resync")
                there = {(kind, name, i) for kind in kinds for i in ids} & armed.keys()
            leaked = there - wanted - allowed
            assert not leaked, f"{group!r}: timers without a reason: {sorted(leaked)}"


class SessionsAreOnesOwn(Invariant):
    """L4: a member's session begins anew when it is heard, and by nothing else: neither when others are
    heard, nor when the group moves. A heartbeat that is accepted gives it all of its session."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, str], float] = {}

    def after(self, event: Event) -> None:
        if event.kind in ("loaded", "append failed"):
            self.ends.clear()
        if event.kind == "append failed":
            return
        seen = [pair for pair in event.after.groups.items() if isinstance(pair[1], ConsumerGroup)]
        for name, group in seen:
            old = event.before.groups.get(name)
            heard = who_asks(event)
            for member_id in group.members:
                at = event.runtime.coordinator.deadlines.get(("session", name, member_id))
                assert at is not None, f"{group!r}: {member_id} has no session"
                known = self.ends.get((name, member_id))
                stayed = isinstance(old, ConsumerGroup) and member_id in old.members
                again = event.kind == "timer" and event.outcome is None
                if known is not None and stayed and member_id not in heard and not again:
                    assert at == known, f"{group!r}: {member_id} was not heard, its session was moved"
                self.ends[name, member_id] = at
        if event.is_request("ConsumerGroupHeartbeat") and event.error is Errors.NONE:
            self._whole(event)

    def _whole(self, event: Event) -> None:
        said: Any = event.request
        answer: Any = event.answer
        if said.member_epoch < 0:
            return
        due_ms = event.runtime.due_ms(("session", said.group_id, answer.member_id))
        told_ms = event.context.group_configs.of(said.group_id)["consumer.session.timeout.ms"]
        assert due_ms == told_ms, f"{answer.member_id} was heard, and has {due_ms} ms of its session"


class WhoIsSilentGoes(Invariant):
    """L4: when a session ends, or the time to give something up, the member is out; and nobody else is."""

    def after(self, event: Event) -> None:
        if event.kind != "timer" or event.outcome is None or len(event.key) < 3:
            return
        kind, name, member_id = event.key
        old, group = event.before.groups.get(name), event.after.groups.get(name)
        if not isinstance(old, ConsumerGroup):
            return
        left = set(group.members) if group is not None else set()
        gone = old.members.keys() - left
        owes = kind != "revocation" or old.members[member_id].current.state is OWES
        assert gone == ({member_id} if owes else set()), f"{event.key}: {sorted(gone)} are out of {old!r}"


OWES = MemberState.UNREVOKED_PARTITIONS


# --- what they all ask -----------------------------------------------------------------------------


def touched(event: Event) -> Iterator[tuple[str, ConsumerGroup | None, ConsumerGroup]]:
    """The consumer groups that an event changed, as they were, if they were some, and as they are."""
    if not (event.changed or event.is_complete):
        return
    for name, group in event.after.groups.items():
        if isinstance(group, ConsumerGroup):
            old = event.before.groups.get(name)
            yield name, old if isinstance(old, ConsumerGroup) else None, group


def units(epochs: Epochs) -> set[Unit]:
    """Partitions by topic id."""
    return {(topic, p) for topic, some in epochs.items() for p in some}


def has(member: Member) -> set[Unit]:
    """What is a member's: assigned, or not given up yet."""
    return units(member.current.assigned) | units(member.current.pending_revocation)


def who_asks(event: Event) -> set[str]:
    """The member ids that a request is of, also one that it was given only now."""
    if event.request is None:
        return set()
    answer: Any = event.answer
    return {getattr(event.request, "member_id", ""), str(getattr(answer, "member_id", ""))}


def durable_part(group: ConsumerGroup) -> ConsumerGroup:
    """All but what a restart may forget."""
    return replace(group, soft=SoftState(), reached_ms={})


def timers_of(group: ConsumerGroup) -> tuple[set[Any], set[Any]]:
    """The timers that a group needs, and those that it may have."""
    name = group.group_id
    wanted: set[Any] = {("session", name, member_id) for member_id in group.members}
    allowed: set[Any] = set()
    for member_id, member in group.members.items():
        if member.classic is not None:
            allowed |= {("rejoin", name, member_id), ("resync", name, member_id)}
        elif member.current.state is OWES and member.current.epoch >= 0:
            wanted.add(("revocation", name, member_id))
    return wanted, allowed
