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
from typing import Any, NamedTuple

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import STREAM, read_subscription
from konvene.groups.consumer.decision import Decision as ConsumerDecision
from konvene.groups.consumer.targets import retarget as retarget_partitions
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.tasks import read_metadata
from konvene.groups.streams.classic.user_data import Task
from konvene.groups.streams.decision import Decision as StreamsDecision
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.targets import retarget as retarget_tasks
from konvene.messages import consumer_group_heartbeat as consumer_wire
from konvene.messages import streams_group_heartbeat as streams_wire
from konvene.shard.contract import Context, GroupConfigs, Outcome
from konvene.shard.errors import GroupError

ROUND_MS = 60_000
"""The time between two rounds of heartbeats, each with one heartbeat of every member."""
MAX_ROUNDS = 25
"""The number of rounds after which the simulation ends although assignments still change."""
REJOINED_SUFFIX = "-back"
"""Appended to the member id of a static member that rejoined."""


class HeartbeatRejected(Exception):
    """Raised when the coordinator rejects a simulated heartbeat; the message is the coordinator's."""


class ConvertedGroup(NamedTuple):
    """The result of a simulated rolling restart: the group after all members rejoined."""

    group: Any
    """The `ConsumerGroup` or `StreamsGroup`."""
    ids: Mapping[str, str]
    """The new member ids by the old ones."""
    settled: bool
    """Whether all members reached their target assignment."""
    heartbeats: int
    """Number of simulated heartbeats."""


class ConfigOverlay:
    """A broker's configs, some of which are overridden: reads `overrides` first, then `below`."""

    def __init__(self, below: Any, overrides: Mapping[str, Any]) -> None:
        self._below = below
        self._overrides = overrides

    def __getitem__(self, name: str) -> Any:
        return self._overrides[name] if name in self._overrides else self._below[name]


class _GroupConfigOverlay:
    """The configs of groups, some of which are overridden for every group."""

    def __init__(self, below: GroupConfigs, overrides: Mapping[str, Any]) -> None:
        self._below = below
        self._overrides = overrides

    def of(self, group_id: str) -> Mapping[str, Any]:
        return {**self._below.of(group_id), **self._overrides}


INLINE_ASSIGNMENT: Mapping[str, Any] = {
    "consumer.assignor.offload.enable": False,
    "streams.assignor.offload.enable": False,
    "consumer.assignment.interval.ms": ROUND_MS,
    "streams.assignment.interval.ms": ROUND_MS,
}
"""Group configs with which targets are computed at once, and not with every join."""


def convert_to_consumer(classic: ClassicGroup, context: Context) -> ConvertedGroup:
    """Return the group after all members rejoined with the consumer protocol. Raises `HeartbeatRejected`."""
    return _RollingRestart(classic, context).run(_consumer_joins(classic), _next_consumer_heartbeat)


def convert_to_streams(
    classic: ClassicGroup,
    topology: streams_wire.Topology,
    tasks: Mapping[str, Iterable[Task]],
    context: Context,
) -> ConvertedGroup:
    """Return the group after all members rejoined with the streams protocol. Raises `HeartbeatRejected`.

    `tasks`: by member id, the tasks with state on the member's disk."""
    return _RollingRestart(classic, context).run(
        _streams_joins(classic, topology, tasks), _next_streams_heartbeat
    )


Joins = dict[str, Struct]
"""The joining heartbeat of each member, by member id in the classic group."""
NextHeartbeat = Callable[[Struct, Any, dict[str, Any]], Struct]
"""Return a member's next heartbeat; parameters: its joining one, the last response, and what it owns."""


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

    def run(self, joins: Joins, next_heartbeat: NextHeartbeat) -> ConvertedGroup:
        members = self._classic.members
        ids = {name: str(joins[name].member_id) for name in members}  # type: ignore[attr-defined]
        owned: dict[str, dict[str, Any]] = {name: {} for name in members}
        responses = {name: self._heartbeat(members[name], joins[name]) for name in members}
        self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
        self._replay(self._retarget())
        settled = False
        for _ in range(MAX_ROUNDS):
            self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
            self._changed = False
            for name, member in members.items():
                responses[name] = self._heartbeat(
                    member, next_heartbeat(joins[name], responses[name], owned[name])
                )
            if not self._changed:
                settled = True
                break
        group = self._shard.groups[self._classic.group_id]
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
        group: Any = self._shard.groups[self._classic.group_id]
        member = next(iter(group.members.values()))
        try:
            if isinstance(group, StreamsGroup):
                step = StreamsDecision(group, self._context)
                step.bump()
                assert group.soft.configured is not None, "a heartbeat has configured the topology"
                retarget_tasks(step, member, group.soft.configured, None, [])
                return step.outcome()
            consumer_step = ConsumerDecision(group, self._context)
            consumer_step.bump(group.metadata_hash)
            retarget_partitions(consumer_step, member, member)
            return consumer_step.outcome()
        except GroupError as refused:
            raise HeartbeatRejected(refused.message or str(refused)) from None


def _id_of(member: Member) -> str:
    """Return the member id with which a member rejoins."""
    return member.member_id if member.instance_id is None else member.member_id + REJOINED_SUFFIX


# --- consumer groups -------------------------------------------------------------------------------


def _consumer_joins(classic: ClassicGroup) -> Joins:
    joins: Joins = {}
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


def _next_consumer_heartbeat(join: Any, response: Any, owned: dict[str, Any]) -> Struct:
    if response.assignment is not None:
        owned["partitions"] = response.assignment.topic_partitions
    return consumer_wire.ConsumerGroupHeartbeatRequest(
        group_id=join.group_id,
        member_id=join.member_id,
        member_epoch=response.member_epoch,
        instance_id=join.instance_id,
        topic_partitions=owned.get("partitions", ()),
    )


def partitions_of(converted: ConvertedGroup) -> dict[str, frozenset[tuple[Uuid, int]]]:
    """Return the target partitions of each member, by old member id."""
    targets = converted.group.targets
    return {
        before: frozenset((topic, p) for topic, some in targets.get(after, {}).items() for p in some)
        for before, after in converted.ids.items()
    }


# --- streams groups --------------------------------------------------------------------------------


def _streams_joins(
    classic: ClassicGroup, topology: streams_wire.Topology, tasks: Mapping[str, Iterable[Task]]
) -> Joins:
    stateful = {each.subtopology_id for each in topology.subtopologies if each.state_changelog_topics}
    joins: Joins = {}
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


ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


def _next_streams_heartbeat(join: Any, response: Any, owned: dict[str, Any]) -> Struct:
    for role in ROLES:
        tasks = getattr(response, role)
        if tasks is not None:
            owned[role] = tasks
    return streams_wire.StreamsGroupHeartbeatRequest(
        group_id=join.group_id,
        member_id=join.member_id,
        member_epoch=response.member_epoch,
        endpoint_information_epoch=response.endpoint_information_epoch,
        instance_id=join.instance_id,
        **{role: owned.get(role, ()) for role in ROLES},
    )


def tasks_of(converted: ConvertedGroup, role: str) -> dict[str, frozenset[Task]]:
    """Return the target tasks of each member in a role (`active`, `standby`, `warmup`), by old member id."""
    group = converted.group
    return {
        before: frozenset(
            (name, p) for name, some in getattr(group.target_of(after), role).items() for p in some
        )
        for before, after in converted.ids.items()
    }
