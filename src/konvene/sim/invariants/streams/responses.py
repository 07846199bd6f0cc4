"""Invariants of what members of a streams group are told: tasks, what is wrong, and where tasks are."""

from __future__ import annotations

from typing import Any

from konvene.client.consumer.protocol import read_subscription
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.classic.user_data import read_subscription_info
from konvene.groups.streams.current_assignment import OwnedTasks, Role, Unit
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import Status
from konvene.groups.streams.topology.expressions import expand_expressions, expressions
from konvene.groups.streams.topology.topology import sources
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from konvene.sim.invariants.modern import CacheableResponses
from konvene.sim.invariants.streams.decisions import HEARTBEAT, owned_by
from konvene.sim.invariants.streams.state import matched_topics, was
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")


class Told:
    """An accepted heartbeat of who joins or stays, and what it was about."""

    def __init__(self, event: Event) -> None:
        self.event, self.said = event, event.request
        answer: Any = event.answer
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        self.answer = answer
        group = event.after.groups.get(self.said.group_id)
        assert isinstance(group, StreamsGroup), f"{self.said.group_id} is {group!r}"
        self.group = group
        before = event.before.groups.get(self.said.group_id)
        self.old_group = before if isinstance(before, StreamsGroup) else None
        member = group.members.get(self.said.member_id)
        assert member is not None, f"{self.said.member_id} is answered and is no member"
        self.member = member
        self.old = was(self.old_group, member)

    @property
    def moved(self) -> bool:
        """Whether the member has other tasks now, or the same since another epoch."""
        before = self.old.current.assigned if self.old is not None else OwnedTasks()
        return before != self.member.current.assigned

    def status(self, code: Status) -> list[str]:
        return [each.status_detail for each in self.answer.status or () if each.status_code == code]


def told(event: Event) -> Told | None:
    """The heartbeat, if there is one to look at."""
    if not event.is_request(HEARTBEAT) or event.error is not Errors.NONE or event.request.member_epoch < 0:
        return None
    return Told(event)


class HeartbeatResponsesListTasks(Invariant):
    """M10: an answer has the member's epoch; and its tasks in all three roles where it joins, where they
    changed, and where it lost an answer: it is behind, says everything anew, or says that it has others."""

    def after(self, event: Event) -> None:
        seen = told(event)
        if seen is None:
            return
        answer, member, said = seen.answer, seen.member, seen.said
        assert answer.member_id == member.member_id, f"{member.member_id} is told it was {answer.member_id}"
        assert answer.member_epoch == member.current.epoch, (
            f"{member.member_id} is told {answer.member_epoch}, it is at {member.current.epoch}"
        )
        has_all_tags = said.rebalance_timeout_ms != -1 and owned_by(said) is not None
        behind = seen.old is not None and 0 < said.member_epoch < seen.old.current.epoch
        holds = member.current.assigned.units()
        has_told = owned_by(answer)
        if has_told is not None:
            assert has_told == holds, f"{member.member_id} is told {sorted(has_told)}, it has {sorted(holds)}"
        else:
            some = [
                t for t in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) if t is not None
            ]
            assert not some, f"{member.member_id} is told a part of what it has: {some}"
            says = owned_by(said)
            others = says is not None and says != holds
            must = said.member_epoch == 0 or has_all_tags or behind or others or seen.moved
            assert not must, f"{member.member_id} is told nothing, and has {sorted(holds)}"
        told_ms = event.context.group_configs.of(said.group_id)["streams.heartbeat.interval.ms"]
        assert 0 < answer.heartbeat_interval_ms <= told_ms, f"told to wait {answer.heartbeat_interval_ms} ms"


class ReturnedTasksAreExclusive(Invariant):
    """T1: what a member is told to run nobody else has, at that very moment."""

    def after(self, event: Event) -> None:
        seen = told(event)
        if seen is None:
            return
        runs: set[Unit] = {u for u in owned_by(seen.answer) or () if u[0] is Role.ACTIVE}
        for other in seen.group.members.values():
            if other.member_id != seen.member.member_id:
                theirs = other.current.assigned.units() | other.current.pending_revocation.units()
                assert not runs & theirs, f"{seen.member.member_id} and {other.member_id}: {runs & theirs}"


class StatusesAreAccurate(Invariant):
    """T9, T16: a member hears that its topology is behind the group's if it is; that somebody asked for a
    shutdown from then on, until all have left; and that an assignment is put off while the group's epoch has
    none, unless it is on its way."""

    def after(self, event: Event) -> None:
        seen = told(event)
        if seen is None:
            return
        group, member = seen.group, seen.member
        assert group.topology is not None
        behind = member.topology_epoch < group.topology.epoch and seen.old_group is not None
        behind = behind and seen.old_group is not None and seen.old_group.topology is not None
        self._is(seen, Status.STALE_TOPOLOGY, behind)
        self._is(seen, Status.SHUTDOWN_APPLICATION, group.soft.shutdown is not None)
        if seen.said.shutdown_application:
            assert group.soft.shutdown is not None, f"{member.member_id} asked for a shutdown in vain"
        put_off = group.epoch > group.assignment_epoch and not group.soft.computing
        unknown = expressions(group.topology) and group.soft.configured is None
        waits = unknown and group.validated_topology_epoch != group.topology.epoch
        self._is(seen, Status.ASSIGNMENT_DELAYED, bool(put_off or group.soft.delayed or waits))

    def _is(self, seen: Told, status: Status, so: bool) -> None:
        said = seen.status(status)
        assert len(said) == so, f"{seen.group!r}: {status.name} is {so}, {seen.member.member_id} hears {said}"


class ShutdownRequestsAreKept(Invariant):
    """T16: who asks for a shutdown, staying or leaving, is remembered by the first of them, until nobody is
    left or the coordinator begins anew."""

    def after(self, event: Event) -> None:
        if event.is_complete or not event.changed:
            return
        for name, group in event.after.groups.items():
            old = event.before.groups.get(name)
            if not isinstance(group, StreamsGroup) or not isinstance(old, StreamsGroup):
                continue
            before, now = old.soft.shutdown, group.soft.shutdown
            is_request = event.is_request(HEARTBEAT) and event.request.shutdown_application
            expected = before
            if before is None and is_request and event.error is Errors.NONE:
                expected = event.request.member_id
            if before is None and event.is_request("JoinGroup") and event.error is Errors.NONE:
                member = group.members.get(str(getattr(event.answer, "member_id", "")))
                expected = member.member_id if member is not None and said_it_is_over(member) else None
            assert now == (expected if group.members else None), f"{group!r}: {now} asked for a shutdown"


def said_it_is_over(member: Member) -> bool:
    """Whether a member of the classic protocol said, as it joined last, that all is to be shut down."""
    assert member.classic is not None
    said = read_subscription(dict(member.classic.protocols)["stream"])
    return read_subscription_info(said.user_data or b"").error_code == 4


class EndpointsAreAccurate(Invariant):
    """T14: where tasks are is told whenever the epoch that a member knows is not the group's, all of it, as
    it is; and that epoch moves when a member with an endpoint has other tasks, or another endpoint."""

    def after(self, event: Event) -> None:
        seen = told(event)
        if seen is None:
            return
        old, member, group = seen.old, seen.member, seen.group
        if isinstance(event.before.groups.get(group.group_id), ClassicGroup) and len(group.members) > 1:
            return  # A member that was in it may be somebody else from now on.
        before = seen.old_group.soft.endpoint_epoch if seen.old_group is not None else 0
        another = member.user_endpoint != (old.user_endpoint if old is not None else None)
        epoch = before + bool(another or (seen.moved and member.user_endpoint is not None))
        epoch += _reads_others(seen)
        tells = epoch != seen.said.endpoint_information_epoch
        answer = seen.answer
        if seen.old_group is None:
            epoch = 0  # As in Kafka: who makes the group hears of it with its next heartbeat.
        assert answer.endpoint_information_epoch == epoch == group.soft.endpoint_epoch, (
            f"{group!r} is at {group.soft.endpoint_epoch}, told is {answer.endpoint_information_epoch},"
            f" it should be {epoch}"
        )
        found = answer.partitions_by_user_endpoint
        assert tells == (found is not None), f"{member.member_id} knew another epoch: {tells}, told {found}"
        if found is None:
            return
        expected = sorted(
            (*m.user_endpoint, *(_partitions(seen, m, roles) for roles in ("active", "copies")))
            for m in group.members.values()
            if m.user_endpoint is not None
        )
        is_told = sorted(
            (
                e.user_endpoint.host,
                e.user_endpoint.port,
                _pairs(e.active_partitions),
                _pairs(e.standby_partitions),
            )
            for e in found
        )
        if group.topology is None or not _has_tasks(group):
            assert not is_told, f"{group!r} has no tasks, told is {is_told}"
        else:
            assert is_told == expected, f"{group!r}: told is {is_told}, it is {expected}"


def _reads_others(seen: Told) -> bool:
    """Whether expressions were seen to match other topics, with this heartbeat."""
    old, group = seen.old_group, seen.group
    if old is None or not expressions(group.topology) or old.topology_epoch != group.topology_epoch:
        return False
    before, now = old.soft.configured, group.soft.configured
    return now is not None and (before is None or before.topology != now.topology)


def _has_tasks(group: StreamsGroup) -> bool:
    return group.soft.configured is not None and bool(group.soft.configured.tasks)


def _pairs(some: Any) -> list[tuple[str, int]]:
    return sorted((each.topic, p) for each in some for p in each.partitions)


def _partitions(seen: Told, member: Member, roles: str) -> list[tuple[str, int]]:
    """The partitions of a member's tasks, of all topics that they read."""
    topology, topics = seen.group.topology, seen.event.runtime.topics.by_name
    assert topology is not None
    topology = expand_expressions(topology, matched_topics(seen.group, seen.event.runtime.topics) or {})
    found = {
        (topic, p)
        for role, name, p in member.current.assigned.units()
        if (role is Role.ACTIVE) == (roles == "active") and name in topology.subtopologies
        for topic in sources(topology.subtopologies[name])
        if topic in topics and p < topics[topic].partitions
    }
    return sorted(found)


class CacheableStreamsHeartbeatsAreRepeatable(CacheableResponses):
    """Ours: of streams groups, where a heartbeat of either protocol is called cacheable, deciding it again
    changes nothing, sets the same timers and returns the same response."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        if not event.is_request(HEARTBEAT, "Heartbeat") or event.error is not Errors.NONE:
            return
        if not isinstance(event.after.groups.get(event.request.group_id), StreamsGroup):
            return
        repeated = self.repeated_response(event)
        if repeated is not None and not event.changed:
            assert repeated == event.answer, f"answered {event.answer}, again {repeated}"
