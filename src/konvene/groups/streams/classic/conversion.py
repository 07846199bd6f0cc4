"""Online conversion of a group between the classic and the streams protocol, both ways (KIP-1071).

    classic → streams   a member of the streams protocol joins. The members are converted as they are, at the
                        generation, with the tasks that their leader assigned; from here on the coordinator
                        assigns. Pending joins and syncs are answered with REBALANCE_IN_PROGRESS, and those
                        members rejoin. The topology is that of the joining member.
    streams → classic   the last member of the streams protocol leaves, or is replaced by its own restart with
                        the classic one. The generation is the group's epoch; a rebalance follows if a member
                        left.

Both are one batch: tombstones of the old group, records of the new one. Committed offsets stay.

Apache Kafka 4.4 converts only empty groups. So this is done only with `konvene.streams.mode` = `kip`, and as
far as `konvene.streams.migration.policy` allows.

The classic protocol has tasks, but not the topics that they read: so the topology of the joining member must
be that of the tasks that the others run. `blockers` and `topology_blockers` compare what they can; on a
mismatch the group stays a classic one, and the join is rejected with the reason.

A task that a member owned at its last join and that its leader did not assign to it may still be running: it
counts as pending revocation until the member rejoins without it. If the leader has not assigned since, the
member keeps it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, read_assignment
from konvene.groups.modern import conversion
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import BIDIRECTIONAL, DISABLED, UPGRADE, Blocker
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams import log
from konvene.groups.streams.classic.tasks import (
    JoinMetadata,
    encode_assignment,
    has_numeric_subtopologies,
    new_report,
    owned_tasks,
    read_metadata,
    subscribed_topics,
)
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    Task,
    UserDataError,
    read_assignment_info,
)
from konvene.groups.streams.current_assignment import (
    NO_OWNED_TASKS,
    CurrentAssignment,
    MemberState,
    OwnedTasks,
)
from konvene.groups.streams.decision import Decision, delay_key, refresh_key
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, configure
from konvene.groups.streams.topology.expressions import expressions
from konvene.groups.streams.topology.topology import Topology
from konvene.groups.streams.validate import topology_after
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.records.coordinator import Record
from konvene.records.streams import StreamsGroupMetadataKey
from konvene.shard.contract import Context, Disarm, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

MAX_TASKS_NAMED = 3

FIRST_VERSION_WITH_JOIN_REBALANCE = 9
"""Version of the user data of Kafka Streams 2.8, the first whose consumer expects REBALANCE_IN_PROGRESS in a
JoinGroup response."""


def policy(config: Mapping[str, object]) -> str:
    """Return which conversions are enabled: the migration policy, which is DISABLED except in mode `kip`."""
    if config["konvene.streams.mode"] != KIP:
        return DISABLED
    return str(config["konvene.streams.migration.policy"]).lower()


# --- blockers --------------------------------------------------------------------------------------


class MetadataCache:
    """A cache of the members' decoded join metadata and assignments."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[JoinMetadata, AssignmentInfo]] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} members decoded>"

    def read(self, member: ClassicMember) -> tuple[JoinMetadata, AssignmentInfo]:
        """Return the member's metadata and assignment. Raises `UserDataError` if either is malformed."""
        known = self._known.get(member.member_id)
        if known is None:
            known = self._known[member.member_id] = _read_member(member)
        return known


def blockers(
    classic: ClassicGroup, config: Mapping[str, Any], cache: MetadataCache | None = None
) -> list[Blocker]:
    """Return the reasons for which the group cannot become a streams group, whatever the topology is.

    Empty if there are none; then `topology_blockers` checks a topology.
    """
    found: list[Blocker] = []
    cache = MetadataCache() if cache is None else cache
    if policy(config) not in (BIDIRECTIONAL, UPGRADE):
        found.append(Blocker("policy", "online upgrade is disabled."))
    if classic.protocol_type != CONSUMER:
        return [*found, Blocker("protocol-type", "the group does not use the consumer embedded protocol.")]
    if len(classic.members) > config["group.streams.max.size"]:
        found.append(Blocker("size", "the group size exceeds the streams group maximum size."))
    others = [m.member_id for m in classic.members.values() if STREAM not in dict(m.protocols)]
    if others:
        reason = f"not all of its members use Kafka Streams' assignor {STREAM}."
        return [*found, Blocker("assignor", reason, tuple(others))]
    for member in classic.members.values():
        try:
            metadata, _ = cache.read(member)
        except UserDataError as unread:
            found.append(
                Blocker("user-data", f"a member's user data cannot be read: {unread}.", (member.member_id,))
            )
            continue
        if metadata.info.named_topologies:
            names = ", ".join(sorted(metadata.info.named_topologies))
            reason = f"a member runs named topologies ({names}), which the streams protocol does not have."
            found.append(Blocker("named-topologies", reason, (member.member_id,)))
    return found


def topology_blockers(
    classic: ClassicGroup,
    topology: Topology,
    configured: ConfiguredTopology,
    topics: Topics,
    cache: MetadataCache | None = None,
) -> list[Blocker]:
    """Return the reasons for which the group's members cannot run this topology.

    To be called only if `blockers` found none.
    """
    cache = MetadataCache() if cache is None else cache
    if expressions(topology):
        return [
            Blocker(
                "expressions", "the topology has source topic expressions, which no classic member knows."
            )
        ]
    if not has_numeric_subtopologies(topology):
        reason = "subtopologies are numbers in the classic protocol, and those of the topology are not."
        return [Blocker("subtopologies", reason)]
    if not configured.is_ready:
        reason = configured.failure.detail if configured.failure is not None else "its topics are not known"
        return [Blocker("not-ready", f"the topology cannot run: {reason}")]
    found = []
    for member in classic.members.values():
        metadata, assignment = cache.read(member)
        wrong = sorted(set(_mismatches(assignment, topology, configured)))
        if wrong:
            more = f" and {len(wrong) - MAX_TASKS_NAMED} more" if len(wrong) > MAX_TASKS_NAMED else ""
            reason = (
                f"a member's tasks are not those of the topology: {'; '.join(wrong[:MAX_TASKS_NAMED])}{more}."
            )
            found.append(Blocker("tasks", reason, (member.member_id,)))
        reads = subscribed_topics(topology)
        if metadata.subscription.topics != reads:
            reason = (
                f"a member subscribes to {_named(metadata.subscription.topics)}, "
                f"and the topology reads {_named(reads)}."
            )
            found.append(Blocker("topics", reason, (member.member_id,)))
    return found


def _named(topics: Iterable[str]) -> str:
    return f"[{', '.join(sorted(topics))}]"


def _read_member(member: ClassicMember) -> tuple[JoinMetadata, AssignmentInfo]:
    """Decode a member's metadata and assignment. Raises `UserDataError` if either is malformed."""
    metadata = read_metadata(member.metadata(STREAM))
    assignment = read_assignment(member.assignment)
    if assignment is None:
        raise UserDataError("the assignment is malformed")
    partitions = tuple((topic, p) for topic, some in assignment.partitions for p in some)
    if not assignment.user_data:
        if partitions:
            raise UserDataError("the assignment has partitions and no tasks")
        return metadata, AssignmentInfo(metadata.info.version, metadata.info.version)
    return metadata, read_assignment_info(assignment.user_data, partitions, tasks_alone=True)


def _mismatches(
    assignment: AssignmentInfo, topology: Topology, configured: ConfiguredTopology
) -> Iterator[str]:
    """Yield the differences between a member's assigned tasks and the topology, one message each.

    A task may be missing, may not read a partition with which it was assigned, or may be a standby without
    state."""
    tasks = [(task, partition) for task, partition in assignment.active]
    tasks += [(task, partition) for task, some in assignment.standby.items() for partition in some]
    for (name, number), (topic, partition) in tasks:
        if number >= configured.tasks.get(name, 0):
            yield f"there is no task {name}_{number}"
        elif topology.readers.get(topic) != name or partition != number:
            yield f"task {name}_{number} does not read {topic}-{partition}"
    for name, number in assignment.standby:
        if name in topology.subtopologies and not topology.is_stateful(name):
            yield f"task {name}_{number} has no state"


# --- classic to streams ----------------------------------------------------------------------------


def upgrade(classic: ClassicGroup, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision:
    """Convert a classic group to a streams group; the member that sent the heartbeat then joins it.

    Raises GROUP_ID_NOT_FOUND if the group cannot be converted.
    """
    cache = MetadataCache()
    _reject(blockers(classic, context.config, cache), classic)
    topology = topology_after(None, request.topology, KIP)  # type: ignore[arg-type]  # Checked: it is there.
    by_name = context.topics.by_name
    counts = {name: by_name[name].partitions for name in topology.required_topics if name in by_name}
    configured = configure(topology, counts, KIP)
    _reject(topology_blockers(classic, topology, configured, context.topics, cache), classic)
    members = _members(classic, topology, configured, cache)
    records = [classic_log.tombstone(classic.group_id), *_records(classic, [m for m, _ in members])]
    private: dict[str, StreamsGroup] = {}
    for record in records[1:]:
        log.replay(private, record)
    decision = Decision(private[classic.group_id], context)
    old = {
        m.member_id for m, metadata in members if metadata.info.version < FIRST_VERSION_WITH_JOIN_REBALANCE
    }
    conversion.convert_classic_members(decision, classic, old)
    decision.records = records
    for member, metadata in members:
        decision.report(member.member_id, new_report(metadata, None, NO_OWNED_TASKS, context.now_ms))
    return decision


def _reject(found: Sequence[Blocker], classic: ClassicGroup) -> None:
    if found:
        head = f"Cannot upgrade classic group {classic.group_id} to streams group because"
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"{head} {found[0].reason}")


def _epoch(classic: ClassicGroup) -> int:
    """Return the group epoch of the converted group: its generation, at least 1 (the first may be 0)."""
    return max(classic.generation, FIRST_EPOCH)


def _records(classic: ClassicGroup, members: Sequence[Member]) -> list[Record]:
    """Return the records of the streams group with its converted members."""
    group_id, epoch = classic.group_id, _epoch(classic)
    return [
        *(log.member_record(group_id, member) for member in members),
        log.group_record(StreamsGroup(group_id), epoch, 0, -1, {}),
        *(log.target_record(group_id, m.member_id, m.current.assigned.tasks) for m in members),
        log.assignment_record(group_id, epoch, 0),
        *(log.current_record(group_id, member.member_id, member.current) for member in members),
    ]


def _members(
    classic: ClassicGroup, topology: Topology, configured: ConfiguredTopology, cache: MetadataCache
) -> list[tuple[Member, JoinMetadata]]:
    """Return the converted members, each with its metadata.

    A task that the leader assigned to several members is that of the first.
    """
    epoch = _epoch(classic)
    decoded = [(member, *cache.read(member)) for member in classic.members.values()]
    owned_by_any: set[Task] = set()
    on_process: set[tuple[str, Task]] = set()
    assigned, revoking = [], []
    for _, _, assignment in decoded:
        assigned.append({task for task, _ in assignment.active} - owned_by_any)
        owned_by_any |= assigned[-1]
    for (member, metadata, _), active in zip(decoded, assigned, strict=True):
        owned = owned_tasks(metadata.subscription.owned, topology).active
        runs = {(name, p) for name, some in owned.items() for p in some if p < configured.tasks.get(name, 0)}
        revoking.append(runs - owned_by_any)
        owned_by_any |= runs
        if not member.assignment:
            # Its leader has not assigned since it joined: it has nothing to revoke.
            active |= revoking.pop()
            revoking.append(set())
        on_process |= {(metadata.info.process_id, task) for task in active}
    found = []
    for (member, metadata, assignment), active, pending in zip(decoded, assigned, revoking, strict=True):
        process_id = metadata.info.process_id
        standby = {task for task in assignment.standby if (process_id, task) not in on_process}
        on_process |= {(process_id, task) for task in standby}
        current = CurrentAssignment(
            MemberState.UNREVOKED_TASKS if pending else MemberState.STABLE,
            epoch,
            epoch,
            OwnedTasks(_at_epoch(active, epoch), _tasks(standby)),
            OwnedTasks(_at_epoch(pending, epoch)),
        )
        found.append((_member(member, metadata, topology.epoch, current), metadata))
    return found


def _tasks(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, tuple[int, ...]] = {}
    for name, partition in sorted(tasks):
        found[name] = (*found.get(name, ()), partition)
    return found


def _at_epoch(tasks: Iterable[Task], epoch: int) -> dict[str, dict[int, int]]:
    return {name: dict.fromkeys(some, epoch) for name, some in _tasks(tasks).items()}


def _member(
    member: ClassicMember, metadata: JoinMetadata, topology_epoch: int, current: CurrentAssignment
) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        metadata.subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        topology_epoch,
        metadata.info.process_id,
        metadata.info.endpoint,
        metadata.info.client_tags,
        ClassicProtocolMetadata(member.session_timeout_ms, member.protocols),
        current,
    )


# --- streams to classic ----------------------------------------------------------------------------


def may_downgrade(decision: Decision, leaving: Collection[Member], *, replaced: bool = False) -> bool:
    """Return whether the group may become a classic group when these members have left.

    `replaced`: the one leaving member is replaced by a classic member. The rules are those of
    `modern.conversion`; in addition, no shutdown of the application may be requested, since the leader of a
    classic group would not learn of it.
    """
    if decision.soft.shutdown is not None:
        return False
    config = decision.context.config
    max_size: int = config["group.max.size"]
    return conversion.may_downgrade(decision.group, leaving, policy(config), max_size, replaced=replaced)


def downgrade(
    decision: Decision, leaving: Sequence[Member], joining: Member | None = None, *, rebalance: bool = True
) -> Outcome:
    """Convert a streams group to a classic one, without the leaving members.

    `joining`: the member of the classic protocol that replaces the leaving one, if there is one. `rebalance`:
    whether the classic group starts a rebalance. The generation is the group's epoch. The assignment of each
    member has the tasks that it owns or has yet to revoke, in case the group is upgraded before the next
    rebalance.
    """
    group = decision.group
    replaced = (leaving[0].member_id, joining.member_id) if joining is not None else None
    # An epoch bumped for the joining member is dropped: its effect is the next generation.
    decision.records = [r for r in decision.records if type(r.key) is not StreamsGroupMetadataKey]
    decision.records += log.group_tombstones(group, replaced)
    stay = [member for member in group.members.values() if member not in leaving]
    stay += [joining] if joining is not None else []
    classic = conversion.to_classic_group(group, stay, decision.context.now_ms)
    for member in stay:
        assignment = encode_assignment(decision, member, _running_tasks(member.current))
        classic.put(replace(classic.members[member.member_id], assignment=assignment))
    decision.timers += [Disarm(delay_key(group.group_id)), Disarm(refresh_key(group.group_id))]
    return conversion.downgrade(decision, classic, leaving, rebalance=rebalance)


def _running_tasks(current: CurrentAssignment) -> MemberAssignment:
    """Return the tasks that a member may be running: those that it owns or has yet to revoke."""
    owned, revoking = current.assigned.tasks, current.pending_revocation.tasks
    active = {
        (name, p) for tasks in (owned.active, revoking.active) for name, some in tasks.items() for p in some
    }
    return replace(owned, active=_tasks(active))
