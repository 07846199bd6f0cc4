"""Dry run of an online protocol migration: what blocks it, and how assignments would change.

    a classic group   to consumer or streams: the coordinator's own blockers (`conversion` of either type),
                      and the assignments after all members rejoined with the new protocol (`roll`)
    another group     to classic: what would block the downgrade when the last member of the new protocol
                      leaves

Blockers that a config can remove (a policy, a size) are reported, and the dry run continues as if they were
removed; blockers of members end it. Notes report what does not block but matters before a migration.

A classic group does not contain the topology of its Kafka Streams application. Without a topology, the dry
run of a migration to streams computes no assignments. With `unseen_topics`, internal topics that the context
lacks are assumed to exist.

The given group is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, read_assignment, read_subscription
from konvene.groups.consumer import conversion as to_consumer
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import TYPES, Group
from konvene.groups.migration.roll import (
    ConfigOverlay,
    ConvertedGroup,
    HeartbeatRejected,
    convert_to_consumer,
    convert_to_streams,
    partitions_of,
    tasks_of,
)
from konvene.groups.modern.conversion import BIDIRECTIONAL, DOWNGRADE, Blocker
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.classic import conversion as to_streams
from konvene.groups.streams.classic.client_versions import EAGER, FIRST_MIGRATING_VERSION, release_of
from konvene.groups.streams.classic.tasks import JoinMetadata, read_metadata
from konvene.groups.streams.classic.user_data import (
    NO_REBALANCE_MS,
    AssignmentInfo,
    Task,
    UserDataError,
    read_assignment_info,
)
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, configure
from konvene.groups.streams.topology.topology import Topology
from konvene.messages import streams_group_heartbeat as wire
from konvene.plurals import counted
from konvene.shard.contract import Context
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

CLASSIC_TYPE, CONSUMER_TYPE, STREAMS_TYPE = "classic", "consumer", "streams"

CONFIG_BLOCKERS = frozenset({"policy", "size"})
"""Codes of blockers that a config can remove: the dry run continues as if they were removed."""

KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""The assignors of Kafka's own consumer; any other is the application's."""


class Note(NamedTuple):
    """A finding that does not block a migration but matters before it."""

    code: str
    sentence: str
    member_ids: tuple[str, ...] = ()
    """The members concerned; empty: the whole group."""


class MemberPlan(NamedTuple):
    """A member with its assignments now and after the migration, as names of partitions or tasks."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    speaks: str
    """The protocol that the member uses now."""
    has: frozenset[str] = frozenset()
    """Owned partitions, or active tasks."""
    standby: frozenset[str] = frozenset()
    """Standby and warm-up tasks, which the classic protocol does not distinguish."""
    version: int | None = None
    """Version of Kafka Streams' user data."""
    process_id: str | None = None
    target: frozenset[str] | None = None
    """The assignment after the migration; None if it was not computed."""
    target_standby: frozenset[str] = frozenset()
    target_warmup: frozenset[str] = frozenset()


class AssignmentChanges(NamedTuple):
    """Counts of how the migration alone would change assignments."""

    stay: int
    """Number of partitions or active tasks that stay with their member."""
    move: int
    """Number that move to another member."""
    fresh: int
    """Number that are assigned after the migration but were not before."""
    lost: int
    """Number that were assigned before the migration but are not after it."""
    copies_stay: int
    """Number of standby tasks that stay with their member, in any role."""
    copies_removed: int
    """Number of standby tasks that their member loses."""
    copies_made: int
    """Number of standby and warm-up tasks that are new to their member."""
    settled: bool
    """Whether all members reached their target assignment."""
    heartbeats: int
    """Number of heartbeats that were simulated."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run for one group: what blocks the migration, and the plan of each member."""

    group_id: str
    type: str
    """The type of the group now; `to` is the one after the migration."""
    to: str
    epoch: int
    """The group's epoch or generation."""
    protocol: str | None
    """The assignor that the members of a classic group agreed on."""
    members: tuple[MemberPlan, ...]
    blockers: tuple[Blocker, ...]
    notes: tuple[Note, ...]
    moves: AssignmentChanges | None = None

    @property
    def can(self) -> bool:
        """Return whether the group can be migrated: no blocker was found."""
        return not self.blockers


class DryRunInputs(NamedTuple):
    """Optional inputs of a dry run of a migration to streams."""

    topology: wire.Topology | None = None
    unseen_topics: bool = True
    """Whether internal topics may exist that the context lacks, as when reading a log."""


NO_INPUTS = DryRunInputs()


def default_target(group: Group) -> str:
    """Return the type that a group would migrate to by default.

    A classic group with Kafka Streams' assignor becomes a streams group, any other classic one a consumer
    group."""
    if not isinstance(group, ClassicGroup):
        return CLASSIC_TYPE
    return STREAMS_TYPE if group.protocol == STREAM else CONSUMER_TYPE


def dry_run_migration(group: Group, to: str, context: Context, inputs: DryRunInputs = NO_INPUTS) -> DryRun:
    """Return what blocks the migration of a group, and how it would change assignments.

    `to`: consumer or streams for a classic group. It is ignored for any other group, which can only become
    classic."""
    if not isinstance(group, ClassicGroup):
        return _to_classic(group, context)
    if not group.members:
        note = Note("empty", "The group has no members: it gets the protocol of the first one that joins.")
        return _result(group, to, (), (), (note,))
    return _to_consumer(group, context) if to == CONSUMER_TYPE else _to_streams(group, context, inputs)


def _result(
    group: ClassicGroup, to: str, members: Iterable[MemberPlan], blockers: Iterable[Blocker],
    notes: Iterable[Note], moves: AssignmentChanges | None = None,
) -> DryRun:  # fmt: skip
    return DryRun(
        group.group_id, CLASSIC_TYPE, to, group.generation, group.protocol, tuple(members), tuple(blockers),
        tuple(notes), moves,
    )  # fmt: skip


def _member_plan(member: Member) -> MemberPlan:
    return MemberPlan(
        member.member_id, member.instance_id, member.client_id, member.client_host, CLASSIC_TYPE
    )


# --- classic to consumer ---------------------------------------------------------------------------


def _to_consumer(group: ClassicGroup, context: Context) -> DryRun:
    blockers = to_consumer.blockers(group, context.config)
    owned = {name: _partitions(member) for name, member in group.members.items()}
    members = {
        name: _member_plan(m)._replace(has=_partition_names(owned[name])) for name, m in group.members.items()
    }
    notes = _consumer_notes(group, owned, context.topics) if group.protocol_type == CONSUMER else []
    if {each.code for each in blockers} - CONFIG_BLOCKERS:
        return _result(group, CONSUMER_TYPE, members.values(), blockers, notes)
    enabled = {to_consumer.POLICY: BIDIRECTIONAL, "group.consumer.max.size": len(group.members)}
    try:
        converted = convert_to_consumer(
            group, context._replace(config=ConfigOverlay(context.config, enabled))
        )
    except HeartbeatRejected as refused:
        blockers.append(Blocker("refused", str(refused)))
        return _result(group, CONSUMER_TYPE, members.values(), blockers, notes)
    names = {topic_id: topic.name for topic_id, topic in context.topics.by_id.items()}
    for name, target in partitions_of(converted).items():
        members[name] = members[name]._replace(target=_partition_names((names[t], p) for t, p in target))
    moves = _assignment_changes(members.values(), converted)
    return _result(group, CONSUMER_TYPE, members.values(), blockers, notes, moves)


def _partitions(member: Member) -> list[tuple[str, int]]:
    given = read_assignment(member.assignment)
    return [(topic, p) for topic, some in given.partitions for p in some] if given is not None else []


def _partition_names(units: Iterable[tuple[str, int]]) -> frozenset[str]:
    return frozenset(f"{topic}-{partition}" for topic, partition in units)


def _consumer_notes(
    group: ClassicGroup, owned: Mapping[str, list[tuple[str, int]]], topics: Topics
) -> list[Note]:
    notes = []
    if group.protocol not in KNOWN_ASSIGNORS:
        sentence = f"The members' own assignor {group.protocol} is no longer used: the coordinator assigns."
        notes.append(Note("own-assignor", sentence))
    seen: dict[tuple[str, int], str] = {}
    duplicates = sorted(
        {unit for name, units in owned.items() for unit in units if seen.setdefault(unit, name) != name}
    )
    if duplicates:
        sentence = f"The leader assigned {_summary(duplicates)} to two members: the first one keeps them."
        notes.append(Note("given-twice", sentence))
    missing = sorted(unit for unit in seen if not topics.has(*unit))
    if missing:
        sentence = f"{_summary(missing)} do not exist or are not visible, and would not be taken over."
        notes.append(Note("unknown-partitions", sentence))
    unsubscribed = sorted(
        {topic for topic, _ in seen} - {t for m in group.members.values() for t in _topics(group, m)}
    )
    if unsubscribed:
        sentence = f"Partitions of {', '.join(unsubscribed)} are assigned, but no member subscribes by name."
        notes.append(Note("not-subscribed", sentence))
    return notes


def _topics(group: ClassicGroup, member: Member) -> frozenset[str]:
    subscription = read_subscription(member.metadata(group.protocol))
    return subscription.topics if subscription is not None else frozenset()


def _summary(units: list[tuple[str, int]]) -> str:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in units[:3])
    return f"{names} and {len(units) - 3} more" if len(units) > 3 else names


# --- classic to streams ----------------------------------------------------------------------------


def _to_streams(group: ClassicGroup, context: Context, inputs: DryRunInputs) -> DryRun:
    blockers = to_streams.blockers(group, context.config)
    decoded = {name: _decode(member) for name, member in group.members.items()}
    members = {name: _streams_member_plan(m, decoded[name]) for name, m in group.members.items()}
    notes = _streams_notes(group, decoded, context)
    is_blocked = {each.code for each in blockers} - CONFIG_BLOCKERS
    if is_blocked or inputs.topology is None:
        if not is_blocked:
            sentence = (
                "No topology was given: tasks and topics were not compared, and no assignment was computed."
            )
            notes.append(Note("no-topology", sentence))
        return _result(group, STREAMS_TYPE, members.values(), blockers, notes)
    config = ConfigOverlay(
        context.config,
        {
            "konvene.streams.mode": KIP,
            "konvene.streams.migration.policy": BIDIRECTIONAL,
            "group.streams.max.size": len(group.members),
        },
    )
    try:
        topology = Topology.from_request(inputs.topology)
        topics, assumed = _with_internal_topics(topology, context.topics, inputs)
        notes += assumed
        configured = _configured(topology, topics)
    except GroupError as refused:
        blockers.append(Blocker("not-ready", refused.message or str(refused)))
        return _result(group, STREAMS_TYPE, members.values(), blockers, notes)
    found = to_streams.topology_blockers(group, topology, configured, topics)
    if found:
        return _result(group, STREAMS_TYPE, members.values(), [*blockers, *found], notes)
    on_disk = {
        name: {task for task, _ in pair[1].active} | set(pair[1].standby)
        for name, pair in decoded.items() if pair is not None
    }  # fmt: skip
    try:
        dry_run_context = context._replace(config=config, topics=topics)
        converted = convert_to_streams(group, inputs.topology, on_disk, dry_run_context)
    except HeartbeatRejected as refused:
        blockers.append(Blocker("refused", str(refused)))
        return _result(group, STREAMS_TYPE, members.values(), blockers, notes)
    roles = {role: tasks_of(converted, role) for role in ("active", "standby", "warmup")}
    for name in members:
        members[name] = members[name]._replace(
            target=_task_names(roles["active"][name]),
            target_standby=_task_names(roles["standby"][name]),
            target_warmup=_task_names(roles["warmup"][name]),
        )
    return _result(
        group,
        STREAMS_TYPE,
        members.values(),
        blockers,
        notes,
        _assignment_changes(members.values(), converted),
    )


def _with_internal_topics(
    topology: Topology, topics: Topics, inputs: DryRunInputs
) -> tuple[Topics, list[Note]]:
    """Return the topics with the missing internal topics of the topology, and a note that names these.

    They are only added with `unseen_topics`."""
    missing = _configured(topology, topics).missing if inputs.unseen_topics else {}
    if not missing:
        return topics, []
    made = [
        Topic(each.name, Uuid(b"rehearsal" + number.to_bytes(7, "big")), each.partitions)
        for number, each in enumerate(missing.values())
    ]
    names = sorted(missing)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    sentence = f"Internal topics that are not visible are assumed to exist: {', '.join(names[:3])}{more}."
    return Topics([*topics.by_name.values(), *made], topics.version), [Note("internal-topics", sentence)]


def _configured(topology: Topology, topics: Topics) -> ConfiguredTopology:
    by_name = topics.by_name
    counts = {name: by_name[name].partitions for name in topology.required_topics if name in by_name}
    return configure(topology, counts, KIP)


def _decode(member: Member) -> tuple[JoinMetadata, AssignmentInfo] | None:
    """Return the metadata and the assignment of a Kafka Streams member; None if either is malformed."""
    try:
        metadata = read_metadata(member.metadata(STREAM))
        assignment = read_assignment(member.assignment)
        if assignment is None or not assignment.user_data:
            return metadata, AssignmentInfo(metadata.info.version, metadata.info.version)
        partitions = tuple((topic, p) for topic, some in assignment.partitions for p in some)
        return metadata, read_assignment_info(assignment.user_data, partitions)
    except UserDataError:
        return None


def _streams_member_plan(member: Member, decoded: tuple[JoinMetadata, AssignmentInfo] | None) -> MemberPlan:
    if decoded is None:
        return _member_plan(member)
    metadata, assignment = decoded
    return _member_plan(member)._replace(
        has=_task_names(task for task, _ in assignment.active),
        standby=_task_names(assignment.standby),
        version=metadata.info.version,
        process_id=metadata.info.process_id,
    )


def _task_names(tasks: Iterable[Task]) -> frozenset[str]:
    return frozenset(f"{name}_{partition}" for name, partition in tasks)


def _streams_notes(
    group: ClassicGroup, decoded: Mapping[str, tuple[JoinMetadata, AssignmentInfo] | None], context: Context
) -> list[Note]:
    read_of = {name: pair for name, pair in decoded.items() if pair is not None}
    notes = []
    old = {name: metadata.info.version for name, (metadata, _) in read_of.items()}
    for version in sorted(set(old.values())):
        member_ids = tuple(name for name, each in old.items() if each == version)
        row = release_of(version)
        if version < FIRST_MIGRATING_VERSION and row is not None:
            stops = ": all tasks stop in each rebalance" if row.rebalances == EAGER else ""
            clients = f"{_member_count(member_ids)} with user data version {version}"
            sentence = f"{clients} (Kafka Streams {row.releases}){stops}."
            notes.append(Note("old-client", sentence, member_ids))
    copies = _max_standbys(read_of.values())
    wanted = context.group_configs.of(group.group_id)["streams.num.standby.replicas"]
    if copies > wanted:
        sentence = (
            f"Tasks have up to {counted(copies, 'standby')}, but the group's streams.num.standby.replicas is "
            f"{wanted}: the others would be dropped."
        )
        notes.append(Note("standbys", sentence))
    waits = tuple(n for n, (_, info) in read_of.items() if info.next_rebalance_ms != NO_REBALANCE_MS)
    if waits:
        notes.append(
            Note("warming-up", "The group still has warm-up tasks: some of the standbys are warm-ups.", waits)
        )
    failed = tuple(name for name, (metadata, _) in read_of.items() if metadata.info.error_code)
    if failed:
        sentence = f"{_member_count(failed)} requested a shutdown of the application."
        notes.append(Note("shutdown", sentence, failed))
    return notes


def _member_count(member_ids: tuple[str, ...]) -> str:
    return counted(len(member_ids), "member")


def _max_standbys(decoded: Iterable[tuple[JoinMetadata, AssignmentInfo]]) -> int:
    """Return the largest number of standbys of one task.

    Members that have warm-up tasks are left out, as their user data does not distinguish these from
    standbys."""
    counts: dict[Task, int] = {}
    for _, assignment in decoded:
        if assignment.next_rebalance_ms != NO_REBALANCE_MS:
            continue  # The member has warm-ups among its standbys.
        for task in assignment.standby:
            counts[task] = counts.get(task, 0) + 1
    return max(counts.values(), default=0)


# --- assignment changes ----------------------------------------------------------------------------


def _assignment_changes(members: Iterable[MemberPlan], converted: ConvertedGroup[Any]) -> AssignmentChanges:
    planned = [each._replace(target=each.target or frozenset()) for each in members]
    before = frozenset[str]().union(*(each.has for each in planned))
    after = frozenset[str]().union(*(each.target or frozenset() for each in planned))
    staying = sum(len(each.has & (each.target or frozenset())) for each in planned)
    copies_stay = copies_removed = copies_made = 0
    for each in planned:
        copies = each.target_standby | each.target_warmup
        assigned = copies | (each.target or frozenset())
        copies_stay += len(each.standby & assigned)
        copies_removed += len(each.standby - assigned)
        copies_made += len(copies - each.standby - each.has)
    return AssignmentChanges(
        staying, len(after & before) - staying, len(after - before), len(before - after), copies_stay,
        copies_removed, copies_made, converted.settled, converted.heartbeats,
    )  # fmt: skip


# --- to classic ------------------------------------------------------------------------------------


def _to_classic(group: ConsumerGroup | StreamsGroup | ShareGroup, context: Context) -> DryRun:
    """Return a dry run of the downgrade that happens when the last member of the new protocol leaves."""
    members = [
        MemberPlan(
            member.member_id, member.instance_id, member.client_id, member.client_host,
            TYPES[type(group)].name if member.classic is None else CLASSIC_TYPE,
        )
        for member in group.members.values()
    ]  # fmt: skip
    classic_members = sum(each.speaks == CLASSIC_TYPE for each in members)
    blockers, notes = [], []
    if _policy(group, context) not in (BIDIRECTIONAL, DOWNGRADE):
        blockers.append(Blocker("policy", "online downgrade is disabled."))
    max_size = context.config["group.max.size"]
    if classic_members > max_size:
        speakers = counted(classic_members, "member")
        reason = f"{speakers} use the classic protocol, but group.max.size is {max_size}."
        blockers.append(Blocker("size", reason))
    others = tuple(each.member_id for each in members if each.speaks != CLASSIC_TYPE)
    if not classic_members and members:
        sentence = "No member uses the classic protocol: once empty, the group can take any protocol."
        notes.append(Note("no-classic-members", sentence))
    elif others:
        left = _member_count(others)
        sentence = f"{left} still to be restarted: when the last one leaves, the group is downgraded."
        notes.append(Note("still-new", sentence, others))
    epoch = group.epoch
    return DryRun(
        group.group_id, TYPES[type(group)].name, CLASSIC_TYPE, epoch, None, tuple(members), tuple(blockers),
        tuple(notes),
    )  # fmt: skip


def _policy(group: object, context: Context) -> str:
    if isinstance(group, StreamsGroup):
        return to_streams.policy(context.config)
    return str(context.config[to_consumer.POLICY]).lower()
