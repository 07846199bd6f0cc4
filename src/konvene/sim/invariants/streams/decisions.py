"""Invariants of the steps of streams groups: who is let in, who moves on, and who may commit.

The rules are said here once more, from the protocol and not from the code that keeps them.
"""

from __future__ import annotations

from typing import Any

from konvene.client.consumer.protocol import read_subscription
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.streams.current_assignment import Role, Unit
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, ConfiguredTopology, configure
from konvene.groups.streams.topology.topology import Topology
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic
from konvene.sim.invariants.modern import (
    LEFT_TEMPORARILY,
    ExpectedHeartbeatErrors,
    FencedCommits,
    FixedRevocationTimeouts,
)
from konvene.sim.invariants.streams.state import OWES, has, touched, units, was
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

HEARTBEAT = "StreamsGroupHeartbeat"
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


# --- M10, M11, M13: who is let in ------------------------------------------------------------------


class StreamsHeartbeatErrorsAreExpected(ExpectedHeartbeatErrors):
    """M10, M13, T3, T8, T12: a heartbeat is answered with the error that its group, topology, epoch, member,
    instance id and tasks require, or with none. M11: a member that joins owns nothing, and reports that."""

    group_type = StreamsGroup
    api = HEARTBEAT

    def expected_error(self, event: Event) -> Errors | None:
        return judged(event) if event.context.config["konvene.streams.mode"] == KAFKA else None


def judged(event: Event) -> Errors | None:
    """The error that a heartbeat deserves; None where that is not for us to tell."""
    said = event.request
    if said.topology is not None and _is_odd(said.topology):
        return None
    if _malformed(said):
        return Errors.INVALID_REQUEST
    found = event.before.groups.get(said.group_id)
    if not isinstance(found, StreamsGroup):
        gives_way = found is None or (isinstance(found, ClassicGroup) and found.state is State.EMPTY)
        if said.member_epoch != 0 or not gives_way:
            return Errors.GROUP_ID_NOT_FOUND
        found = StreamsGroup(said.group_id)
    member, holder = found.members.get(said.member_id), found.static_member(said.instance_id)
    full = len(found.members) >= event.context.config["group.streams.max.size"]
    if said.member_epoch == 0 and full and member is None and holder is None:
        return Errors.GROUP_MAX_SIZE_REACHED
    wrong = _identity(said, member, holder)
    if wrong is None and member is not None and said.member_epoch > 0:
        wrong = _epoch(said, member)
    if wrong is None and said.member_epoch >= 0:
        wrong = _contents(event, found)
    return wrong or Errors.NONE


def _is_odd(sent: Any) -> bool:
    """Topologies that are looked at by themselves: `tests/groups/streams/test_validate.py`."""
    return sent.epoch < 0 or any(
        each.source_topic_regex
        or INTERNAL_TOPICS & set(each.source_topics)
        or any(topic.partitions for topic in each.state_changelog_topics)
        for each in sent.subtopologies
    )


def _malformed(said: Any) -> bool:
    told = [getattr(said, role) for role in ROLES]
    names = (said.member_id, said.group_id, said.instance_id, said.rack_id)
    if any(text is not None and not text.strip() for text in names):
        return True
    if said.member_epoch == 0:
        return said.rebalance_timeout_ms == -1 or said.topology is None or any(t != () for t in told)
    if said.topology is not None or said.member_epoch < LEFT_TEMPORARILY:
        return True
    if said.member_epoch == LEFT_TEMPORARILY and said.instance_id is None:
        return True
    return any(t is None for t in told) and any(t is not None for t in told)


def _identity(said: Any, member: Member | None, holder: Member | None) -> Errors | None:
    joins = said.member_epoch == 0
    if said.instance_id is None:
        return None if member is not None or joins else Errors.UNKNOWN_MEMBER_ID
    if holder is None:
        return None if joins else Errors.UNKNOWN_MEMBER_ID
    if joins:
        return None if holder.current.epoch == LEFT_TEMPORARILY else Errors.UNRELEASED_INSTANCE_ID
    return None if holder.member_id == said.member_id else Errors.FENCED_INSTANCE_ID


def _epoch(said: Any, member: Member) -> Errors | None:
    current = member.current
    if said.member_epoch == current.epoch:
        return None
    behind = said.member_epoch == current.previous_epoch and said.member_epoch < current.epoch
    owned = owned_by(said)
    if behind and owned is not None and owned <= current.assigned.units():
        return None
    return Errors.FENCED_MEMBER_EPOCH


def _contents(event: Event, group: StreamsGroup) -> Errors | None:
    said = event.request
    tags = [tag.key for tag in said.client_tags or ()]
    if len(set(tags)) < len(tags):
        return Errors.UNKNOWN_SERVER_ERROR
    topology = group.topology
    if said.topology is not None:
        try:
            sent = Topology.from_request(said.topology)
        except GroupError as wrong:
            return wrong.error
        if topology is not None and sent != topology and sent.epoch >= topology.epoch:
            return Errors.INVALID_REQUEST
        topology = topology or sent
    if topology is None:
        return Errors.FENCED_MEMBER_EPOCH
    by_name = event.runtime.topics.by_name
    try:
        found = configure(topology, {name: by_name[name].partitions for name in by_name}, KAFKA)
    except GroupError as wrong:
        return wrong.error
    if found.is_ready and not _exist(said, found):
        return Errors.INVALID_REQUEST
    for offsets in (said.task_offsets, said.task_end_offsets):
        tasks = [(each.subtopology_id, each.partition) for each in offsets or ()]
        if len(set(tasks)) < len(tasks):
            return Errors.INVALID_REQUEST
    return None


def _exist(said: Any, found: ConfiguredTopology) -> bool:
    return all(
        0 <= partition < found.tasks.get(each.subtopology_id, 0)
        for role in ROLES
        for each in getattr(said, role) or ()
        for partition in each.partitions
    ) and all(each.subtopology_id in found.tasks for role in ROLES for each in getattr(said, role) or ())


def owned_by(said: Any) -> set[Unit] | None:
    """What a heartbeat says that its member has; None where it does not say all of it."""
    told = [getattr(said, name) for name in ROLES]
    if any(some is None for some in told):
        return None
    return {
        (role, each.subtopology_id, partition)
        for role, some in zip(Role, told, strict=True)
        for each in some
        for partition in each.partitions
    }


# --- M3, M5, M6: who moves on ----------------------------------------------------------------------


class TaskRevocationsAreConfirmed(Invariant):
    """M6: a task that a member had it has no more when it says in all three roles what it has, without that,
    or leaves for a while; but a task may change its role in place. A heartbeat that leaves out any of the
    three confirms nothing. MG1: who speaks the classic protocol says as it joins which partitions it owns;
    copies it has as long as it is told to."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if old is None or event.is_complete:
                continue
            for member in group.members.values():
                before = was(old, member)
                if before is None:
                    continue
                gone = has(before) - has(member)
                stays = {unit[1:] for unit in has(member)}
                passive = {unit for unit in gone if unit[0] is not Role.ACTIVE and unit[1:] in stays}
                gone -= passive
                if gone:
                    kept = self._kept(event, member, before)
                    told = f"{name}: {sorted(gone)} are taken from {member.member_id}"
                    assert kept is not None, f"{told} by {event.api or event.key}"
                    assert not kept & gone, f"{told}, who has {sorted(kept & gone)}"

    def _kept(self, event: Event, member: Member, before: Member) -> set[Unit] | None:
        """What the member says that it still has; None where it says nothing. M13: who leaves for a while
        gives up what it owes, and keeps the rest."""
        said = event.request
        if event.is_request("JoinGroup") and joined_as(event) == member.member_id:
            return owned_by_partitions(event, before)
        if said is None or said.member_id != member.member_id or event.api != HEARTBEAT:
            return None
        if said.member_epoch == LEFT_TEMPORARILY:
            return before.current.assigned.units()
        return owned_by(said)


def joined_as(event: Event) -> str:
    """The member id of who joined with the classic protocol."""
    return str(getattr(event.answer, "member_id", ""))


def owned_by_partitions(event: Event, before: Member) -> set[Unit]:
    """The active tasks of which a JoinGroup says that it owns some partition; and no copies."""
    said = {each.name: each.metadata for each in event.request.protocols}.get("stream", b"")
    group = event.before.groups[event.request.group_id]
    assert isinstance(group, StreamsGroup)
    return {
        (Role.ACTIVE, str(group.reader_of(topic)), partition)
        for topic, partition in read_owned(said)
        if group.reader_of(topic) is not None
    }


def read_owned(metadata: bytes) -> set[tuple[str, int]]:
    """What a subscription says that its member owns."""
    try:
        return {(each.topic, each.partition) for each in read_subscription(metadata).owned}
    except CodecError:
        return set()


class StreamsMembersAdvanceAfterRevocation(Invariant):
    """M3: a member comes to its target's epoch when it has nothing any more that is not in its target, but
    for copies of tasks that it is to run and that are not free yet; until then it stays at its epoch, or is
    one further each time that it gave something up.

    M5: who has yet to give something up is given no other task; it may go on with one in another role."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            for member in group.members.values():
                before = was(old, member)
                if before is not None and before.current is member.current:
                    continue
                classic = event.before.groups.get(name)
                if isinstance(classic, ClassicGroup) and (
                    member.classic is not None or member.instance_id in classic.instances
                ):
                    continue  # See `StreamsUpgradesKeepTasks`; a static member may rejoin at once.
                self._look(name, group, before, member)

    def _look(self, name: str, group: StreamsGroup, before: Member | None, member: Member) -> None:
        now, who = member.current, f"{name}: {member.member_id}"
        past = before.current if before is not None else None
        target = units(group.target_of(member.member_id))
        had = has(before) if before is not None else set()
        runs = {unit[1:] for unit in target if unit[0] is Role.ACTIVE}
        if past is not None and now.epoch > past.epoch >= 0 and now.state is not OWES:
            left = {u for u in has(member) - target if u[0] is Role.ACTIVE or u[1:] not in runs}
            assert not left, f"{who} came to {now.epoch} with {sorted(left)}"
            assert now.epoch == group.assignment_epoch, f"{who} came to {now.epoch}"
        if past is not None and now.state is OWES and now.epoch > past.epoch >= 0:
            assert past.state is OWES, f"{who} came to {now.epoch}, and owes something"
            assert now.epoch == past.epoch + 1, f"{who} came from {past.epoch} to {now.epoch}, and owes"
        added = now.assigned.units() - had
        assert added <= target, f"{who} is given {sorted(added - target)}"
        if now.state is OWES:
            other = {unit for unit in added if unit[1:] not in {u[1:] for u in had}}
            assert not other, f"{who} owes something and is given {sorted(other)}"
            assert not [u for u in added if u[0] is Role.ACTIVE], (
                f"{who} owes something and is to run {added}"
            )


class StreamsRevocationTimeoutsAreFixed(FixedRevocationTimeouts):
    """M5: of streams groups, a member has its rebalance timeout to confirm a revocation; later targets and
    heartbeats do not extend it."""

    group_type = StreamsGroup


# --- O1: commits -----------------------------------------------------------------------------------


class StreamsCommitErrorsAreExpected(FencedCommits):
    """O1: a commit is accepted from a member at its epoch; at an older one for the topics of active tasks
    that it owned by then; from anyone in an empty group. Others get STALE_MEMBER_EPOCH, or
    ILLEGAL_GENERATION."""

    group_type = StreamsGroup

    def owned_since(self, group: StreamsGroup, member: Member, topic: Topic, partition: int) -> int | None:
        name = group.reader_of(topic.name)
        for tasks in (member.current.assigned, member.current.pending_revocation):
            since = tasks.active.get(name or "", {}).get(partition)
            if since is not None:
                return since
        return None
