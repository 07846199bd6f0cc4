"""Invariants of the decisions of streams groups: errors, revocation, members' epochs, and commits.

The rules are implemented here a second time, from the protocol and not from the code that is checked.
"""

from __future__ import annotations

from konvene.client.consumer.protocol import read_subscription
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.streams.current_assignment import Role, Unit
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, ConfiguredTopology, configure
from konvene.groups.streams.topology.topology import Topology
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.messages.streams_group_heartbeat import Topology as SentTopology
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic
from konvene.sim.invariants.modern import (
    LEFT_TEMPORARILY,
    ExpectedHeartbeatErrors,
    FencedCommits,
    FixedRevocationTimeouts,
)
from konvene.sim.invariants.streams.classic_state import STREAM
from konvene.sim.invariants.streams.state import UNREVOKED, owned_units, previous_member, touched, units
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

HEARTBEAT = "StreamsGroupHeartbeat"
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


def is_accepted_heartbeat(event: Event) -> bool:
    """Return True for an accepted heartbeat of a member that joins or stays."""
    return event.is_request(HEARTBEAT) and event.error is Errors.NONE and event.request.member_epoch >= 0


# --- M10, M11, M13: errors -------------------------------------------------------------------------


class StreamsHeartbeatErrorsAreExpected(ExpectedHeartbeatErrors[StreamsGroup]):
    """M10, M13, T3, T8, T12: a heartbeat is answered with the error that its group, topology, epoch, member,
    instance id and tasks require, or with none. M11: a member that joins owns nothing, and reports that."""

    group_type = StreamsGroup
    api = HEARTBEAT

    def expected_error(self, event: Event) -> Errors | None:
        in_kafka_mode = event.context.config["konvene.streams.mode"] == KAFKA
        return expected_heartbeat_error(event) if in_kafka_mode else None


def expected_heartbeat_error(event: Event) -> Errors | None:
    """Return the error that a heartbeat must be answered with; None if another check decides that."""
    request = event.request
    if request.topology is not None and _has_unusual_topology(request.topology):
        return None
    if _is_malformed(request):
        return Errors.INVALID_REQUEST
    group = event.before.groups.get(request.group_id)
    if not isinstance(group, StreamsGroup):
        replaceable = group is None or (isinstance(group, ClassicGroup) and group.state is State.EMPTY)
        if request.member_epoch != 0 or not replaceable:
            return Errors.GROUP_ID_NOT_FOUND
        group = StreamsGroup(request.group_id)
    member, static_member = group.members.get(request.member_id), group.static_member(request.instance_id)
    full = len(group.members) >= event.context.config["group.streams.max.size"]
    if request.member_epoch == 0 and full and member is None and static_member is None:
        return Errors.GROUP_MAX_SIZE_REACHED
    error = _check_identity(request, member, static_member)
    if error is None and member is not None and request.member_epoch > 0:
        error = _check_epoch(request, member)
    if error is None and request.member_epoch >= 0:
        error = _check_contents(event, group)
    return error or Errors.NONE


def _has_unusual_topology(topology: SentTopology) -> bool:
    """Return True for topologies whose errors `tests/groups/streams/test_validate.py` checks."""
    return topology.epoch < 0 or any(
        each.source_topic_regex
        or INTERNAL_TOPICS & set(each.source_topics)
        or any(topic.partitions for topic in each.state_changelog_topics)
        for each in topology.subtopologies
    )


def _is_malformed(request: StreamsGroupHeartbeatRequest) -> bool:
    tasks = [getattr(request, role) for role in ROLES]
    names = (request.member_id, request.group_id, request.instance_id, request.rack_id)
    if any(text is not None and not text.strip() for text in names):
        return True
    if request.member_epoch == 0:
        incomplete = request.rebalance_timeout_ms == -1 or request.topology is None
        return incomplete or any(reported != () for reported in tasks)
    if request.topology is not None or request.member_epoch < LEFT_TEMPORARILY:
        return True
    if request.member_epoch == LEFT_TEMPORARILY and request.instance_id is None:
        return True
    return any(reported is None for reported in tasks) and any(reported is not None for reported in tasks)


def _check_identity(
    request: StreamsGroupHeartbeatRequest, member: Member | None, static_member: Member | None
) -> Errors | None:
    joins = request.member_epoch == 0
    if request.instance_id is None:
        return None if member is not None or joins else Errors.UNKNOWN_MEMBER_ID
    if static_member is None:
        return None if joins else Errors.UNKNOWN_MEMBER_ID
    if joins:
        released = static_member.current.epoch == LEFT_TEMPORARILY
        return None if released else Errors.UNRELEASED_INSTANCE_ID
    return None if static_member.member_id == request.member_id else Errors.FENCED_INSTANCE_ID


def _check_epoch(request: StreamsGroupHeartbeatRequest, member: Member) -> Errors | None:
    current = member.current
    if request.member_epoch == current.epoch:
        return None
    is_previous = request.member_epoch == current.previous_epoch and request.member_epoch < current.epoch
    reported = reported_units(request)
    if is_previous and reported is not None and reported <= current.assigned.units():
        return None
    return Errors.FENCED_MEMBER_EPOCH


def _check_contents(event: Event, group: StreamsGroup) -> Errors | None:
    request = event.request
    tags = [tag.key for tag in request.client_tags or ()]
    if len(set(tags)) < len(tags):
        return Errors.UNKNOWN_SERVER_ERROR
    topology = group.topology
    if request.topology is not None:
        try:
            sent = Topology.from_request(request.topology)
        except GroupError as error:
            return error.error
        if topology is not None and sent != topology and sent.epoch >= topology.epoch:
            return Errors.INVALID_REQUEST
        topology = topology or sent
    if topology is None:
        return Errors.FENCED_MEMBER_EPOCH
    by_name = event.runtime.topics.by_name
    try:
        configured = configure(topology, {name: by_name[name].partitions for name in by_name}, KAFKA)
    except GroupError as error:
        return error.error
    if configured.is_ready and not _all_tasks_exist(request, configured):
        return Errors.INVALID_REQUEST
    for offsets in (request.task_offsets, request.task_end_offsets):
        tasks = [(each.subtopology_id, each.partition) for each in offsets or ()]
        if len(set(tasks)) < len(tasks):
            return Errors.INVALID_REQUEST
    return None


def _all_tasks_exist(request: StreamsGroupHeartbeatRequest, configured: ConfiguredTopology) -> bool:
    reported = [each for role in ROLES for each in getattr(request, role) or ()]
    return all(each.subtopology_id in configured.tasks for each in reported) and all(
        0 <= partition < configured.tasks[each.subtopology_id]
        for each in reported
        for partition in each.partitions
    )


def reported_units(message: StreamsGroupHeartbeatRequest | StreamsGroupHeartbeatResponse) -> set[Unit] | None:
    """Return the tasks of a heartbeat request or response, with their roles; None unless it has all three."""
    tasks = [getattr(message, role) for role in ROLES]
    if any(reported is None for reported in tasks):
        return None
    return {
        (role, each.subtopology_id, partition)
        for role, reported in zip(Role, tasks, strict=True)
        for each in reported
        for partition in each.partitions
    }


# --- M3, M5, M6: reconciliation --------------------------------------------------------------------


class TaskRevocationsAreConfirmed(Invariant):
    """M6: a member loses ownership of a task only when it reports its tasks in all three roles without it, or
    when it leaves temporarily; a standby or warm-up task may change its role. A heartbeat without one of the
    three roles confirms nothing. MG1: a member of the classic protocol reports its partitions when it joins;
    it keeps its copies until it gets another assignment."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if old is None or event.is_complete:
                continue
            for member in group.members.values():
                before = previous_member(old, member)
                if before is not None:
                    self._check_member(event, name, before, member)

    def _check_member(self, event: Event, name: str, before: Member, member: Member) -> None:
        revoked = owned_units(before) - owned_units(member)
        tasks = {unit[1:] for unit in owned_units(member)}
        revoked -= {unit for unit in revoked if unit[0] is not Role.ACTIVE and unit[1:] in tasks}
        if revoked:
            reported = self._reported_units(event, member, before)
            revocation = f"{name}: {event.api or event.key} revoked {sorted(revoked)} of {member.member_id}"
            assert reported is not None, f"{revocation}, which reported nothing"
            assert not reported & revoked, f"{revocation}, which still reports {sorted(reported & revoked)}"

    def _reported_units(self, event: Event, member: Member, before: Member) -> set[Unit] | None:
        """Return the tasks that the member reports as owned; None if it does not. M13: a member that leaves
        temporarily revokes what it has to, and keeps the rest."""
        request = event.request
        if event.is_request("JoinGroup") and joined_member_id(event) == member.member_id:
            return units_reported_by_join(event)
        if request is None or request.member_id != member.member_id or event.api != HEARTBEAT:
            return None
        if request.member_epoch == LEFT_TEMPORARILY:
            return before.current.assigned.units()
        return reported_units(request)


def joined_member_id(event: Event) -> str:
    """Return the member id that the response to a JoinGroup assigns."""
    return str(getattr(event.answer, "member_id", ""))


def units_reported_by_join(event: Event) -> set[Unit]:
    """Return the active tasks of which a JoinGroup reports a partition as owned."""
    metadata = {each.name: each.metadata for each in event.request.protocols}.get(STREAM, b"")
    group = event.before.groups[event.request.group_id]
    assert isinstance(group, StreamsGroup)
    return {
        (Role.ACTIVE, str(group.reader_of(topic)), partition)
        for topic, partition in _read_owned_partitions(metadata)
        if group.reader_of(topic) is not None
    }


def _read_owned_partitions(metadata: bytes) -> set[tuple[str, int]]:
    """Return the owned partitions of a subscription; none if it cannot be decoded."""
    try:
        return {(each.topic, each.partition) for each in read_subscription(metadata).owned}
    except CodecError:
        return set()


class StreamsMembersAdvanceAfterRevocation(Invariant):
    """M3: a member advances to the epoch of its target when it owns nothing outside of it, except copies of
    tasks that it is to run once they are released. While it has to revoke tasks it keeps its epoch, or
    advances by one if it confirms a revocation and the next target requires another.

    M5: a member that has to revoke a task gets no other task; it may get one of its tasks in another role."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            for member in group.members.values():
                before = previous_member(old, member)
                if before is not None and before.current is member.current:
                    continue
                classic = event.before.groups.get(name)
                if isinstance(classic, ClassicGroup) and (
                    member.classic is not None or member.instance_id in classic.instances
                ):
                    continue  # See `StreamsUpgradesKeepTasks`; a static member may rejoin at once.
                self._check_member(name, group, before, member)

    def _check_member(self, name: str, group: StreamsGroup, before: Member | None, member: Member) -> None:
        current, prefix = member.current, f"{name}: {member.member_id}"
        target = units(group.target_of(member.member_id))
        if before is not None and current.epoch > before.current.epoch >= 0:
            self._check_advance(prefix, group, before, member)
        owned = owned_units(before) if before is not None else set()
        added = current.assigned.units() - owned
        assert added <= target, f"{prefix} gets {sorted(added - target)}, outside its target"
        if current.state is UNREVOKED:
            new = {unit for unit in added if unit[1:] not in {owned_unit[1:] for owned_unit in owned}}
            assert not new, f"{prefix} gets {sorted(new)} before its revocation"
            active = [unit for unit in added if unit[0] is Role.ACTIVE]
            assert not active, f"{prefix} gets the active tasks {active} before its revocation"

    def _check_advance(self, prefix: str, group: StreamsGroup, before: Member, member: Member) -> None:
        current, previous = member.current, before.current
        if current.state is UNREVOKED:
            assert previous.state is UNREVOKED, f"{prefix} advanced to {current.epoch} and has to revoke"
            assert current.epoch == previous.epoch + 1, (
                f"{prefix} advanced from {previous.epoch} to {current.epoch} and has to revoke"
            )
            return
        target = units(group.target_of(member.member_id))
        to_run = {unit[1:] for unit in target if unit[0] is Role.ACTIVE}
        unrevoked = {
            unit for unit in owned_units(member) - target if unit[0] is Role.ACTIVE or unit[1:] not in to_run
        }
        assert not unrevoked, f"{prefix} advanced to {current.epoch} with {sorted(unrevoked)}"
        assert current.epoch == group.assignment_epoch, (
            f"{prefix} advanced to {current.epoch}, the target is of {group.assignment_epoch}"
        )


class StreamsRevocationTimeoutsAreFixed(FixedRevocationTimeouts[StreamsGroup]):
    """M5: in a streams group, a member has its rebalance timeout to confirm a revocation; later targets and
    heartbeats do not extend it."""

    group_type = StreamsGroup


# --- O1: commits -----------------------------------------------------------------------------------


class StreamsCommitErrorsAreExpected(FencedCommits[StreamsGroup]):
    """O1: a commit is accepted from a member at its epoch; at an older one for the topics of active tasks
    that it has owned at least since that epoch; from any client in an empty streams group. Any other epoch is
    answered with STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a member of the classic protocol."""

    group_type = StreamsGroup

    def owned_since(self, group: StreamsGroup, member: Member, topic: Topic, partition: int) -> int | None:
        name = group.reader_of(topic.name)
        for tasks in (member.current.assigned, member.current.pending_revocation):
            since = tasks.active.get(name or "", {}).get(partition)
            if since is not None:
                return since
        return None
