"""Snapshots of a group for tests: its state, members, assignments, committed offsets and rebalances.

The values are taken at one moment on the broker's event loop and never change. `str()` of each is a readable
description. A group that does not exist is Dead, has no members and generation -1. For consumer, share and
streams groups (KIP-848, KIP-932, KIP-1071), `generation` is the group epoch and `protocol` the assignor. A
member of a streams group has tasks; its assignment is the source partitions of its active tasks. A share
group has `records` (`share_group`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from konvene.client.consumer.protocol import read_assignment
from konvene.codec import batches
from konvene.codec.errors import CodecError
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.history import describe
from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.assignors import assignor_of
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.group import Member as StreamsMember
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.topology import sources
from konvene.internal_topics import AUDIT_TOPIC
from konvene.plurals import counted
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, decode_record
from konvene.shard.contract import Context
from konvene.shard.image import Topics

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

DEAD = "Dead"
ASSIGNING = "Assigning"
"""State of the audit row of an epoch bump, until all members have reached their target assignments."""
CONSUMER = "consumer"


class TasksView(NamedTuple):
    """The tasks of a streams group member by role, including those pending revocation.

    A task is written as its subtopology id and partition, such as `0_1`."""

    active: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()
    warmup: tuple[str, ...] = ()

    def __str__(self) -> str:
        roles = (f"{role} {','.join(tasks)}" for role, tasks in self._asdict().items() if tasks)
        return "; ".join(roles)


class MemberView(NamedTuple):
    """A group member. `assignment` has its partitions by topic.

    The assignment is empty in a classic group whose protocol type is not "consumer"."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: dict[str, tuple[int, ...]]
    tasks: TasksView | None = None
    """The member's tasks; None except in a streams group."""
    process_id: str | None = None
    """Process id of a streams group member; members of one process share local state."""

    @property
    def owned(self) -> str:
        """The assignment as text: `letters:0 orders:0,1`, or `active 0_0,0_1` in a streams group."""
        if self.tasks is not None:
            return str(self.tasks)
        rows = sorted(self.assignment.items())
        return " ".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in rows)

    def __str__(self) -> str:
        name = f"{self.instance_id} = {self.member_id}" if self.instance_id else self.member_id
        return f"{name} (client {self.client_id} at {self.client_host}) owns {self.owned or 'nothing'}"


class RecordsView(NamedTuple):
    """A range of in-flight records of a share group, both ends included: delivered at least once, and not
    below the start offset."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    state: str
    """`acquired`, `available` again, or `acknowledged` or `archived` ahead of the share group's start
    offset."""
    member_id: str | None
    """Member that has acquired the records, or None."""
    delivery_count: int

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition} {self.first_offset}..{self.last_offset}"
        owner = f" by {self.member_id}" if self.member_id else ""
        return f"{where} {self.state}{owner}, delivery {self.delivery_count}"


class GroupView(NamedTuple):
    """The state of a group. `members` are in joining order; `offsets` has committed offsets by topic and
    partition.

    For a share group `offsets` has the start offsets of partitions that were fetched since the broker
    started."""

    name: str
    state: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberView, ...]
    offsets: dict[str, dict[int, int]]
    topology_epoch: int | None = None
    """Epoch of a streams group's topology; None before a member has sent one."""
    records: tuple[RecordsView, ...] = ()
    """In a share group, the in-flight records."""

    def member(self, member: int | str) -> MemberView:
        """Return a member by position from 1, member id, instance id or client id. Raises LookupError."""
        if isinstance(member, int):
            matches = list(self.members[member - 1 : member]) if member > 0 else []
        else:
            matches = [m for m in self.members if member in (m.member_id, m.instance_id, m.client_id)]
        if len(matches) != 1:
            raise LookupError(f"{counted(len(matches), 'member')} match {member!r} in {self}")
        return matches[0]

    def __str__(self) -> str:
        members = counted(len(self.members), "member")
        head = f"group {self.name} is {self.state} in generation {self.generation} with {members}"
        rows = [f"  {number}. {member}" for number, member in enumerate(self.members, 1)]
        rows += [f"  delivered: {each}" for each in self.records]
        rows += [
            f"  committed: {topic}-{partition} at {offset}"
            for topic, partitions in sorted(self.offsets.items())
            for partition, offset in sorted(partitions.items())
        ]
        return "\n".join([head, *rows])


class RebalanceView(NamedTuple):
    """One generation or group epoch, and its causes, as `__konvene_audit` has them."""

    group: str
    generation: int
    state: str
    """Resulting state; Assigning while members have not reached their target assignments, also if the next
    epoch came first."""
    duration_ms: int | None
    """Milliseconds from the first cause to the end; None if it has not ended, or was inferred after a
    crash."""
    causes: tuple[str, ...]
    """Names from `shard.causes`, such as session-expired."""
    cause_clients: tuple[str, ...]
    """For each cause, the client id of the member that caused it; empty if no member did."""
    members: tuple[str, ...]
    """Client ids of the members at the end of the rebalance."""
    summary: str
    """The rebalance in one sentence."""

    def __str__(self) -> str:
        return f"group {self.group}: {self.summary}"


class GroupMember(Protocol):
    """The interface that the members of all types of groups have in common."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...


def shard_of(broker: Broker, group: str) -> GroupShard | None:
    """Return the shard of the group's coordinator; None before the coordinator is created."""
    coordinator = broker.groups.of(group)
    core = coordinator.core if coordinator is not None else None
    return core if isinstance(core, GroupShard) else None


def group_view(broker: Broker, name: str) -> GroupView:
    """Return the current state of a group of any type; state Dead if it does not exist."""
    shard = shard_of(broker, name)
    group = shard.groups.get(name) if shard is not None else None
    if shard is None or group is None:
        return GroupView(name, DEAD, -1, None, None, (), {})
    offsets = {
        topic: {partition: committed.offset for partition, committed in sorted(rows.items())}
        for topic, rows in sorted(shard.offsets.get(name, {}).items())
    }
    state = str(group.state)
    if isinstance(group, ConsumerGroup):
        members = tuple(_consumer(m, broker.catalogue.topics) for m in group.members.values())
        assignor = group.preferred_assignor() or next(iter(broker.groups.assignors))
        return GroupView(name, state, group.epoch, assignor, None, members, offsets)
    if isinstance(group, StreamsGroup):
        return _streams(broker, group, offsets)
    if isinstance(group, ShareGroup):
        from konvene.testing.share_group import share_view

        return share_view(broker, group)
    members = tuple(_member(m, group.protocol_type) for m in group.members.values())
    return GroupView(name, state, group.generation, group.protocol, group.leader, members, offsets)


def _member(member: ClassicMember, protocol_type: str | None) -> MemberView:
    assignment: dict[str, tuple[int, ...]] = {}
    if protocol_type == CONSUMER and member.assignment:
        try:
            for topic, partition in sorted(read_assignment(member.assignment).partitions):
                assignment[topic] = (*assignment.get(topic, ()), partition)
        except CodecError:
            assignment = {}
    return MemberView(member.member_id, member.instance_id, member.client_id, member.client_host, assignment)


def _consumer(member: Member, topics: Topics) -> MemberView:
    """Return the view of a consumer group member; its assignment includes partitions pending revocation."""
    assignment: dict[str, tuple[int, ...]] = {}
    for epochs in (member.current.assigned, member.current.pending_revocation):
        for topic, partitions in epochs.items():
            if topic in topics.by_id:
                name = topics.by_id[topic].name
                assignment[name] = tuple(sorted((*assignment.get(name, ()), *partitions)))
    assignment = {name: assignment[name] for name in sorted(assignment)}
    return MemberView(member.member_id, member.instance_id, member.client_id, member.client_host, assignment)


def _streams(broker: Broker, group: StreamsGroup, offsets: dict[str, dict[int, int]]) -> GroupView:
    name = group.group_id
    context = Context(0, broker.settings.config, task_assignors=broker.groups.task_assignors)
    reported = map(group.reported.get, group.members)
    assignor = assignor_of(broker.settings.group_configs.of(name), context, group.topology, reported).name
    members = tuple(_streams_member(m, group) for m in group.members.values())
    epoch = None if group.topology is None else group.topology.epoch
    return GroupView(name, str(group.state), group.epoch, assignor, None, members, offsets, epoch)


def _streams_member(member: StreamsMember, group: StreamsGroup) -> MemberView:
    held = (member.current.assigned, member.current.pending_revocation)
    tasks = TasksView(*(_tasks([each.of(role) for each in held]) for role in Role))
    source_partitions: dict[str, set[int]] = {}
    known = group.topology.subtopologies if group.topology is not None else {}
    for each in held:
        for subtopology, epochs in each.active.items():
            for topic in sources(known[subtopology]) if subtopology in known else ():
                source_partitions.setdefault(topic, set()).update(epochs)
    assignment = {topic: tuple(sorted(source_partitions[topic])) for topic in sorted(source_partitions)}
    return MemberView(
        member.member_id, member.instance_id, member.client_id, member.client_host, assignment, tasks,
        member.process_id,
    )  # fmt: skip


def _tasks(held: Iterable[Mapping[str, Iterable[int]]]) -> tuple[str, ...]:
    task_ids = {
        (name, partition) for each in held for name, partitions in each.items() for partition in partitions
    }
    return tuple(f"{name}_{partition}" for name, partition in sorted(task_ids))


def rebalance_history(broker: Broker, name: str | None = None) -> list[RebalanceView]:
    """Return all rebalances of the group `name`, or of all groups, from `__konvene_audit`, oldest first.

    A consumer, share or streams group has one for each epoch, although the audit has two rows for it: one
    when the epoch is bumped, and one when all members have reached their target assignments."""
    rows: list[tuple[str, RebalanceValue]] = []
    in_progress: dict[tuple[str, int], int] = {}
    for group, value in _audit_rows(broker, name):
        at = in_progress.pop((group, value.epoch), None)
        if at is not None and value.group_type == rows[at][1].group_type:
            rows[at] = (group, _completed(rows[at][1], value))
            continue
        if value.state == ASSIGNING:
            in_progress[group, value.epoch] = len(rows)
        rows.append((group, value))
    return [_rebalance(group, value) for group, value in rows]


def _audit_rows(broker: Broker, name: str | None) -> Iterator[tuple[str, RebalanceValue]]:
    partition = broker.partitions.get(AUDIT_TOPIC, 0)
    for header, batch in partition.batches() if partition is not None else ():
        for row in batches.records(batch, header):
            record = decode_record(row.key or b"", row.value, AUDIT_RECORDS)
            if record is None or not isinstance(record.key, RebalanceKey):
                continue
            if isinstance(record.value, RebalanceValue) and name in (None, record.key.group):
                yield record.key.group, record.value


def _completed(bump: RebalanceValue, end: RebalanceValue) -> RebalanceValue:
    """Return the row of an epoch whose bump and completion the audit has in two rows.

    The second one repeats the causes of earlier epochs that were superseded, and begins with their start."""
    return end.replace(
        started_ms=bump.started_ms,
        causes=bump.causes,
        causes_left_out=bump.causes_left_out,
        inferred=bump.inferred or end.inferred,
    )


def _rebalance(group: str, value: RebalanceValue) -> RebalanceView:
    known = value.state != ASSIGNING and 0 <= value.started_ms <= value.ended_ms
    return RebalanceView(
        group=group,
        generation=value.epoch,
        state=value.state,
        duration_ms=value.ended_ms - value.started_ms if known else None,
        causes=tuple(cause.kind for cause in value.causes),
        cause_clients=tuple(cause.client_id or "" for cause in value.causes),
        members=tuple(member.client_id for member in value.members),
        summary=describe(value),
    )


__all__ = ["DEAD", "GroupView", "MemberView", "RebalanceView", "TasksView", "group_view", "rebalance_history"]
