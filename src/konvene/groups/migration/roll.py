"""Simulate a rolling restart on a copy of the group: all members rejoin with the new protocol, one by one.

The decisions are those of a real broker: a `GroupShard` with this one group handles the heartbeats that
members would send. Each member rejoins as itself, so partitions move only because the assignor differs, not
because members left. Static members rejoin under a new member id, as after a real restart. All members have
their state on disk.

A member that rejoins as itself does not affect the target, so there may be no new target, whereas a real
rolling restart computes several. Therefore the epoch is bumped once after all members rejoined, as the next
real change would do, and rounds of heartbeats follow until one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import STREAM, read_subscription
from konvene.groups.consumer.decision import Decision as ConsumerDecision
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.targets import retarget as retarget_partitions
from konvene.groups.modern.group import ModernGroup, get_or_throw_group
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.tasks import read_metadata
from konvene.groups.streams.classic.user_data import Task
from konvene.groups.streams.decision import Decision as StreamsDecision
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.targets import retarget as retarget_tasks
from konvene.messages import consumer_group_heartbeat as consumer_wire
from konvene.messages import streams_group_heartbeat as streams_wire
from konvene.shard.contract import Configs, Context, GroupConfigs, Outcome
from konvene.shard.errors import GroupError

ROUND_MS = 60_000
"""The time between two rounds of heartbeats, each with one heartbeat of every member."""
MAX_ROUNDS = 25
"""The number of rounds after which the simulation ends although assignments still change."""
REJOINED_SUFFIX = "-back"
"""Appended to the member id of a static member that rejoined."""


G = TypeVar("G", bound=ModernGroup[Any])


class HeartbeatRejected(Exception):
    """Raised when the coordinator rejects a simulated heartbeat; the message is the coordinator's."""


class ConvertedGroup(NamedTuple, Generic[G]):
    """The result of a simulated rolling restart: the group after all members rejoined."""

    group: G
    ids: Mapping[str, str]
    """The new member ids by the old ones."""
    settled: bool
    """Whether all members reached their target assignment."""
    heartbeats: int
    """Number of simulated heartbeats."""


class ConfigOverlay:
    """A broker's configs with overrides: reads `overrides` first, then `below`."""

    def __init__(self, below: Configs, overrides: Mapping[str, object]) -> None:
        self._below = below
        self._overrides = overrides

    def __getitem__(self, name: str) -> Any:
        return self._overrides[name] if name in self._overrides else self._below[name]


class _GroupConfigOverlay:
    """Group configs with the same overrides for every group: reads `overrides` first, then `below`."""

    def __init__(self, below: GroupConfigs, overrides: Mapping[str, object]) -> None:
        self._below = below
        self._overrides = overrides

    def of(self, group_id: str) -> Mapping[str, Any]:
        return {**self._below.of(group_id), **self._overrides}


INLINE_ASSIGNMENT: Mapping[str, object] = {
    "consumer.assignor.offload.enable": False,
    "streams.assignor.offload.enable": False,
    "consumer.assignment.interval.ms": ROUND_MS,
    "streams.assignment.interval.ms": ROUND_MS,
}
"""Group configs with which the core computes targets itself, and at most one per round of heartbeats."""


def convert_to_consumer(classic: ClassicGroup, context: Context) -> ConvertedGroup[ConsumerGroup]:
    """Return the group after all members rejoined with the consumer protocol. Raises `HeartbeatRejected`."""
    joins = _consumer_joins(classic)
    return _RollingRestart(classic, context).run(joins, _next_consumer_heartbeat, ConsumerGroup)


def convert_to_streams(
    classic: ClassicGroup,
    topology: streams_wire.Topology,
    tasks: Mapping[str, Iterable[Task]],
    context: Context,
) -> ConvertedGroup[StreamsGroup]:
    """Return the group after all members rejoined with the streams protocol. Raises `HeartbeatRejected`.

    `tasks`: by member id, the tasks with state on the member's disk."""
    joins = _streams_joins(classic, topology, tasks)
    return _RollingRestart(classic, context).run(joins, _next_streams_heartbeat, StreamsGroup)


Heartbeat = TypeVar(
    "Heartbeat", consumer_wire.ConsumerGroupHeartbeatRequest, streams_wire.StreamsGroupHeartbeatRequest
)
NextHeartbeat = Callable[[Heartbeat, Any], Heartbeat]
"""Return a member's next heartbeat, after the last one and its response."""


class _RollingRestart:
    def __init__(self, classic: ClassicGroup, context: Context) -> None:
        self._shard = GroupShard()
        self._shard.groups[classic.group_id] = classic
        self._classic = classic
        self._context = context._replace(
            group_configs=_GroupConfigOverlay(context.group_configs, INLINE_ASSIGNMENT)
        )
        self._heartbeats = 0
        self._changed = False

    def run(
        self, joins: Mapping[str, Heartbeat], next_heartbeat: NextHeartbeat[Heartbeat], group_class: type[G]
    ) -> ConvertedGroup[G]:
        """Let all members rejoin, then send heartbeats in rounds until one changes nothing; return the group.

        `joins`: by old member id, the heartbeat with which the member rejoins. `next_heartbeat`: returns the
        heartbeat that follows a heartbeat and its response."""
        members = self._classic.members
        ids = {name: joins[name].member_id for name in members}
        requests = dict(joins)
        responses = {name: self._heartbeat(members[name], joins[name]) for name in members}
        self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
        self._replay(self._retarget())
        settled = False
        for _ in range(MAX_ROUNDS):
            self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
            self._changed = False
            for name, member in members.items():
                requests[name] = next_heartbeat(requests[name], responses[name])
                responses[name] = self._heartbeat(member, requests[name])
            if not self._changed:
                settled = True
                break
        group = get_or_throw_group(self._shard.groups, self._classic.group_id, group_class)
        return ConvertedGroup(group, ids, settled, self._heartbeats)

    def _heartbeat(self, member: Member, request: Struct) -> Any:
        context = self._context._replace(
            client_id=member.client_id, client_host=member.client_host, api_version=1
        )
        outcome = self._shard.handle(request, context)
        self._replay(outcome)
        self._heartbeats += 1
        response = outcome.replies[0].response
        if response.error_code:
            raise HeartbeatRejected(response.error_message or f"error {response.error_code}")
        return response

    def _replay(self, outcome: Outcome) -> None:
        for record in (*outcome.records, *outcome.soft_records):
            self._shard.replay(record)
        self._changed = self._changed or bool(outcome.records)

    def _retarget(self) -> Outcome:
        """Bump the epoch and compute new targets."""
        group = self._shard.groups[self._classic.group_id]
        try:
            if isinstance(group, StreamsGroup):
                streams_member = next(iter(group.members.values()))
                step = StreamsDecision(group, self._context)
                step.bump()
                assert group.soft.configured is not None, "a heartbeat has configured the topology"
                retarget_tasks(step, streams_member, group.soft.configured, None, [])
                return step.outcome()
            assert isinstance(group, ConsumerGroup)
            member = next(iter(group.members.values()))
            consumer_step = ConsumerDecision(group, self._context)
            consumer_step.bump(group.metadata_hash)
            retarget_partitions(consumer_step, member, member)
            return consumer_step.outcome()
        except GroupError as refused:
            raise HeartbeatRejected(refused.message or str(refused)) from None


def _id_of(member: Member) -> str:
    """Return the member id with which a member rejoins: its own, or a new one if it is static."""
    return member.member_id if member.instance_id is None else member.member_id + REJOINED_SUFFIX


# --- consumer groups -------------------------------------------------------------------------------


def _consumer_joins(classic: ClassicGroup) -> dict[str, consumer_wire.ConsumerGroupHeartbeatRequest]:
    joins = {}
    for name, member in classic.members.items():
        subscription = read_subscription(member.metadata(classic.protocol))
        assert subscription is not None, "blockers() has checked that it can be decoded"
        joins[name] = consumer_wire.ConsumerGroupHeartbeatRequest(
            group_id=classic.group_id,
            member_id=_id_of(member),
            member_epoch=0,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topic_names=tuple(sorted(subscription.topics)),
            topic_partitions=(),
        )
    return joins


def _next_consumer_heartbeat(
    last: consumer_wire.ConsumerGroupHeartbeatRequest, response: consumer_wire.ConsumerGroupHeartbeatResponse
) -> consumer_wire.ConsumerGroupHeartbeatRequest:
    assignment = response.assignment
    return consumer_wire.ConsumerGroupHeartbeatRequest(
        group_id=last.group_id,
        member_id=last.member_id,
        member_epoch=response.member_epoch,
        instance_id=last.instance_id,
        topic_partitions=last.topic_partitions if assignment is None else assignment.topic_partitions,
    )


def partitions_of(converted: ConvertedGroup[ConsumerGroup]) -> dict[str, frozenset[tuple[Uuid, int]]]:
    """Return the target partitions of each member, by the id that it had in the classic group."""
    targets = converted.group.targets
    return {
        before: frozenset((topic, p) for topic, some in targets.get(after, {}).items() for p in some)
        for before, after in converted.ids.items()
    }


# --- streams groups --------------------------------------------------------------------------------


def _streams_joins(
    classic: ClassicGroup, topology: streams_wire.Topology, tasks: Mapping[str, Iterable[Task]]
) -> dict[str, streams_wire.StreamsGroupHeartbeatRequest]:
    stateful = {each.subtopology_id for each in topology.subtopologies if each.state_changelog_topics}
    joins = {}
    for name, member in classic.members.items():
        metadata = read_metadata(member.metadata(STREAM))
        endpoint = metadata.info.endpoint
        offsets = tuple(
            streams_wire.TaskOffset(subtopology_id=task[0], partition=task[1], offset=0)
            for task in sorted(set(tasks.get(name, ())))
            if task[0] in stateful
        )
        joins[name] = streams_wire.StreamsGroupHeartbeatRequest(
            group_id=classic.group_id,
            member_id=_id_of(member),
            member_epoch=0,
            instance_id=member.instance_id,
            rack_id=metadata.subscription.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology=topology,
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=metadata.info.process_id,
            user_endpoint=None
            if endpoint is None
            else streams_wire.Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=tuple(streams_wire.KeyValue(key=k, value=v) for k, v in metadata.info.client_tags),
            task_offsets=offsets,
            task_end_offsets=offsets,
        )
    return joins


def _next_streams_heartbeat(
    last: streams_wire.StreamsGroupHeartbeatRequest, response: streams_wire.StreamsGroupHeartbeatResponse
) -> streams_wire.StreamsGroupHeartbeatRequest:
    return streams_wire.StreamsGroupHeartbeatRequest(
        group_id=last.group_id,
        member_id=last.member_id,
        member_epoch=response.member_epoch,
        endpoint_information_epoch=response.endpoint_information_epoch,
        instance_id=last.instance_id,
        active_tasks=last.active_tasks if response.active_tasks is None else response.active_tasks,
        standby_tasks=last.standby_tasks if response.standby_tasks is None else response.standby_tasks,
        warmup_tasks=last.warmup_tasks if response.warmup_tasks is None else response.warmup_tasks,
    )


def tasks_of(converted: ConvertedGroup[StreamsGroup], role: str) -> dict[str, frozenset[Task]]:
    """Return the target tasks of each member, by the id that it had in the classic group.

    `role`: the kind of tasks: `active`, `standby` or `warmup`."""
    group = converted.group
    return {
        before: frozenset(
            (name, p) for name, some in getattr(group.target_of(after), role).items() for p in some
        )
        for before, after in converted.ids.items()
    }
