"""Invariants of the responses to heartbeats of streams groups: tasks, statuses, and endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.protocol import read_subscription
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.classic.user_data import read_subscription_info
from konvene.groups.streams.current_assignment import OwnedTasks, Role, Unit
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import Status
from konvene.groups.streams.topology.expressions import expand_expressions, expressions
from konvene.groups.streams.topology.topology import sources
from konvene.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatResponse,
    TopicPartition,
)
from konvene.sim.invariants.modern import CacheableResponses
from konvene.sim.invariants.streams.classic_state import SHUTDOWN_REQUESTED, STREAM
from konvene.sim.invariants.streams.decisions import (
    HEARTBEAT,
    ROLES,
    is_accepted_heartbeat,
    joined_member_id,
    reported_units,
)
from konvene.sim.invariants.streams.state import matched_topics, previous_member
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")


class AcceptedHeartbeat:
    """An accepted heartbeat of a member that joins or stays, with the group and member before and after."""

    def __init__(self, event: Event) -> None:
        self.event, self.request = event, event.request
        response = event.answer
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        self.response = response
        group = event.after.groups.get(self.request.group_id)
        assert isinstance(group, StreamsGroup), f"{self.request.group_id} is {group!r}"
        self.group = group
        before = event.before.groups.get(self.request.group_id)
        self.old_group = before if isinstance(before, StreamsGroup) else None
        member = group.members.get(self.request.member_id)
        assert member is not None, f"{self.request.member_id} gets a response, but is no member"
        self.member = member
        self.old_member = previous_member(self.old_group, member)

    @property
    def changed_assignment(self) -> bool:
        """Return True if the event changed the tasks of the member, or the epoch since which it has one."""
        before = self.old_member.current.assigned if self.old_member is not None else OwnedTasks()
        return before != self.member.current.assigned

    def status_details(self, code: Status) -> list[str]:
        """Return the details of each status with this code in the response."""
        return [each.status_detail for each in self.response.status or () if each.status_code == code]


def accepted_heartbeat(event: Event) -> AcceptedHeartbeat | None:
    """Return the accepted heartbeat of an event; None for any other event."""
    return AcceptedHeartbeat(event) if is_accepted_heartbeat(event) else None


class HeartbeatResponsesListTasks(Invariant):
    """M10: a response has the member's epoch. It has the tasks of all three roles if the member joins, if
    they changed, and if the member may have missed a response: its epoch is old, it sends a full heartbeat,
    or it reports other tasks."""

    def after(self, event: Event) -> None:
        heartbeat = accepted_heartbeat(event)
        if heartbeat is None:
            return
        response, member, request = heartbeat.response, heartbeat.member, heartbeat.request
        member_id, epoch, old = member.member_id, member.current.epoch, heartbeat.old_member
        assert response.member_id == member_id, f"{member_id} gets the member id {response.member_id}"
        assert response.member_epoch == epoch, f"{member_id} gets {response.member_epoch}, is at {epoch}"
        assigned = member.current.assigned.units()
        returned = reported_units(response)
        if returned is not None:
            assert returned == assigned, f"{member_id} gets {sorted(returned)}, but has {sorted(assigned)}"
        else:
            partial = [tasks for role in ROLES if (tasks := getattr(response, role)) is not None]
            assert not partial, f"{member_id} gets only some of its tasks: {partial}"
            reported = reported_units(request)
            is_full = request.rebalance_timeout_ms != -1 and reported is not None
            is_behind = old is not None and 0 < request.member_epoch < old.current.epoch
            reports_others = reported is not None and reported != assigned
            required = request.member_epoch == 0 or is_full or is_behind or reports_others
            required = required or heartbeat.changed_assignment
            assert not required, f"{member_id} gets no tasks, but has {sorted(assigned)}"
        max_ms = event.context.group_configs.of(request.group_id)["streams.heartbeat.interval.ms"]
        interval_ms = response.heartbeat_interval_ms
        assert 0 < interval_ms <= max_ms, f"the heartbeat interval is {interval_ms} ms, more than {max_ms}"


class ReturnedTasksAreExclusive(Invariant):
    """T1: no other member owns an active task at the moment when a response assigns it."""

    def after(self, event: Event) -> None:
        heartbeat = accepted_heartbeat(event)
        if heartbeat is None:
            return
        member_id = heartbeat.member.member_id
        active: set[Unit] = {u for u in reported_units(heartbeat.response) or () if u[0] is Role.ACTIVE}
        for other in heartbeat.group.members.values():
            if other.member_id != member_id:
                owned = other.current.assigned.units() | other.current.pending_revocation.units()
                assert not active & owned, f"{member_id} and {other.member_id} own {active & owned}"


class StatusesAreAccurate(Invariant):
    """T9, T16: a response reports STALE_TOPOLOGY if the member's topology is older than the group's,
    SHUTDOWN_APPLICATION from a shutdown request until all members have left, and ASSIGNMENT_DELAYED while the
    group epoch has no assignment and none is being computed."""

    def after(self, event: Event) -> None:
        heartbeat = accepted_heartbeat(event)
        if heartbeat is None:
            return
        group, member, old_group = heartbeat.group, heartbeat.member, heartbeat.old_group
        assert group.topology is not None
        is_stale = member.topology_epoch < group.topology.epoch
        is_stale = is_stale and old_group is not None and old_group.topology is not None
        self._check_status(heartbeat, Status.STALE_TOPOLOGY, is_stale)
        self._check_status(heartbeat, Status.SHUTDOWN_APPLICATION, group.soft.shutdown is not None)
        if heartbeat.request.shutdown_application:
            assert group.soft.shutdown is not None, f"the shutdown request of {member.member_id} is ignored"
        outdated = group.epoch > group.assignment_epoch and not group.soft.computing
        unresolved = expressions(group.topology) and group.soft.configured is None
        not_validated = unresolved and group.validated_topology_epoch != group.topology.epoch
        is_delayed = bool(outdated or group.soft.delayed or not_validated)
        self._check_status(heartbeat, Status.ASSIGNMENT_DELAYED, is_delayed)

    def _check_status(self, heartbeat: AcceptedHeartbeat, status: Status, expected: bool) -> None:
        details = heartbeat.status_details(status)
        assert len(details) == expected, (
            f"{heartbeat.group!r}: {heartbeat.member.member_id} gets {status.name} {details},"
            f" expected: {expected}"
        )


class ShutdownRequestsAreKept(Invariant):
    """T16: a group keeps the first member that requests a shutdown, until it is empty or the coordinator
    loads its log again. A member that leaves may request a shutdown as well."""

    def after(self, event: Event) -> None:
        if event.is_complete or not event.changed:
            return
        for name, group in event.after.groups.items():
            old = event.before.groups.get(name)
            if not isinstance(group, StreamsGroup) or not isinstance(old, StreamsGroup):
                continue
            current, expected = group.soft.shutdown, old.soft.shutdown
            if expected is None and event.error is Errors.NONE:
                expected = self._requesting_member(event, group)
            expected = expected if group.members else None
            assert current == expected, f"{group!r}: the shutdown is requested by {current}, not {expected}"

    def _requesting_member(self, event: Event, group: StreamsGroup) -> str | None:
        """Return the id of the member that requests a shutdown with this event."""
        if event.is_request(HEARTBEAT) and event.request.shutdown_application:
            return str(event.request.member_id)
        if event.is_request("JoinGroup"):
            member = group.members.get(joined_member_id(event))
            if member is not None and requests_shutdown(member):
                return member.member_id
        return None


def requests_shutdown(member: Member) -> bool:
    """Return True if the last JoinGroup of a member of the classic protocol requested a shutdown."""
    assert member.classic is not None
    subscription = read_subscription(dict(member.classic.protocols)[STREAM])
    return read_subscription_info(subscription.user_data or b"").error_code == SHUTDOWN_REQUESTED


class EndpointsAreAccurate(Invariant):
    """T14: a response lists the endpoints and partitions of all members if the endpoint epoch of the member
    is not the group's; and that epoch moves when the tasks or the endpoint of a member with an endpoint
    change."""

    def after(self, event: Event) -> None:
        heartbeat = accepted_heartbeat(event)
        if heartbeat is None:
            return
        old, member, group = heartbeat.old_member, heartbeat.member, heartbeat.group
        if isinstance(event.before.groups.get(group.group_id), ClassicGroup) and len(group.members) > 1:
            return  # An upgrade may replace other members too.
        epoch = heartbeat.old_group.soft.endpoint_epoch if heartbeat.old_group is not None else 0
        other_endpoint = member.user_endpoint != (old.user_endpoint if old is not None else None)
        other_tasks = heartbeat.changed_assignment and member.user_endpoint is not None
        epoch += bool(other_endpoint or other_tasks)
        epoch += _resolved_other_topics(heartbeat)
        required = epoch != heartbeat.request.endpoint_information_epoch
        response = heartbeat.response
        if heartbeat.old_group is None:
            epoch = 0  # As in Kafka: the creator of a group gets the epoch with its next heartbeat.
        assert response.endpoint_information_epoch == epoch == group.soft.endpoint_epoch, (
            f"{group!r}: the endpoint epoch is {group.soft.endpoint_epoch}, returned as"
            f" {response.endpoint_information_epoch}, expected {epoch}"
        )
        returned = response.partitions_by_user_endpoint
        assert required == (returned is not None), (
            f"{member.member_id} gets the endpoints {returned}, required: {required}"
        )
        if returned is not None:
            self._check_endpoints(heartbeat, returned)

    def _check_endpoints(
        self, heartbeat: AcceptedHeartbeat, endpoints: Iterable[EndpointToPartitions]
    ) -> None:
        group = heartbeat.group
        expected = sorted(
            (
                *m.user_endpoint,
                _source_partitions(heartbeat, m, active=True),
                _source_partitions(heartbeat, m, active=False),
            )
            for m in group.members.values()
            if m.user_endpoint is not None
        )
        returned = sorted(
            (
                each.user_endpoint.host,
                each.user_endpoint.port,
                _pairs(each.active_partitions),
                _pairs(each.standby_partitions),
            )
            for each in endpoints
        )
        if group.topology is None or group.soft.configured is None or not group.soft.configured.tasks:
            assert not returned, f"{group!r} has no tasks, but returns {returned}"
        else:
            assert returned == expected, f"{group!r} returns {returned}, expected {expected}"


def _resolved_other_topics(heartbeat: AcceptedHeartbeat) -> bool:
    """Return True if the topics that the regular expressions of the topology match were resolved anew since
    the event before, with another result."""
    old, group = heartbeat.old_group, heartbeat.group
    if old is None or not expressions(group.topology) or old.topology_epoch != group.topology_epoch:
        return False
    before, after = old.soft.configured, group.soft.configured
    return after is not None and (before is None or before.topology != after.topology)


def _pairs(topic_partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return sorted((each.topic, p) for each in topic_partitions for p in each.partitions)


def _source_partitions(
    heartbeat: AcceptedHeartbeat, member: Member, *, active: bool
) -> list[tuple[str, int]]:
    """Return the source partitions of a member's active tasks, or of its other tasks."""
    topology, topics = heartbeat.group.topology, heartbeat.event.runtime.topics
    assert topology is not None
    topology = expand_expressions(topology, matched_topics(heartbeat.group, topics) or {})
    partitions = {
        (topic, p)
        for role, name, p in member.current.assigned.units()
        if (role is Role.ACTIVE) == active and name in topology.subtopologies
        for topic in sources(topology.subtopologies[name])
        if topic in topics.by_name and p < topics.by_name[topic].partitions
    }
    return sorted(partitions)


class CacheableStreamsHeartbeatsAreRepeatable(CacheableResponses[StreamsGroup]):
    """Ours: in a streams group, deciding a cacheable heartbeat of either protocol again changes nothing, sets
    the same timers and returns the same response."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        if not event.is_request(HEARTBEAT, "Heartbeat") or event.error is not Errors.NONE:
            return
        if not isinstance(event.after.groups.get(event.request.group_id), StreamsGroup):
            return
        repeated = self.repeated_response(event)
        if repeated is not None and not event.changed:
            assert repeated == event.answer, f"the response is {event.answer}, repeated {repeated}"
