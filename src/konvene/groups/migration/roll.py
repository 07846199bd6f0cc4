"""A group's members come back with the new protocol, one after the other, on a copy of the group.

What decides is what serves: a shard with this one group, and the heartbeats that members would send. Each of
them is itself again, so what moves does so because another assignor says it, and not because members went.
Whoever is static takes its own place under a new member id, as it would after a restart. All have their
state on their disks.

A member that comes back as itself changes nothing that targets rest on, and none may be computed for it; a
roll in earnest computes several. So when all are back the epoch is moved once, as it is by whatever comes
next: then it is the coordinator's assignor that says who is to have what, and time moves on until a round of
heartbeats changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import STREAM, read_subscription
from konvene.groups.consumer.decision import Decision as ConsumerStep
from konvene.groups.consumer.targets import retarget as retarget_partitions
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.tasks import read_metadata
from konvene.groups.streams.classic.user_data import Task
from konvene.groups.streams.decision import Decision as StreamsStep
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.targets import retarget as retarget_tasks
from konvene.messages import consumer_group_heartbeat as consumer_wire
from konvene.messages import streams_group_heartbeat as streams_wire
from konvene.shard.contract import Context, GroupConfigs, Outcome
from konvene.shard.errors import GroupError

ROUND_MS = 60_000
MOST_ROUNDS = 25
BACK = "-back"
"""Behind the member id of a static member that came back."""


class Refused(Exception):
    """The coordinator refused what a member asked; its words."""


class Rolled(NamedTuple):
    """The group when all are back."""

    group: Any
    ids: Mapping[str, str]
    """Member ids now, by those that they had."""
    settled: bool
    """Whether all have what they are meant to have."""
    heartbeats: int


class Overlaid:
    """A broker's settings, some of them others."""

    def __init__(self, below: Any, others: Mapping[str, Any]) -> None:
        self._below = below
        self._others = others

    def __getitem__(self, name: str) -> Any:
        return self._others[name] if name in self._others else self._below[name]


class _OverlaidGroups:
    """The settings of groups, some of them others."""

    def __init__(self, below: GroupConfigs, others: Mapping[str, Any]) -> None:
        self._below = below
        self._others = others

    def of(self, group_id: str) -> Mapping[str, Any]:
        return {**self._below.of(group_id), **self._others}


HERE: Mapping[str, Any] = {
    "consumer.assignor.offload.enable": False,
    "streams.assignor.offload.enable": False,
    "consumer.assignment.interval.ms": ROUND_MS,
    "streams.assignment.interval.ms": ROUND_MS,
}
"""Targets are computed here, and not with each who joins."""


def rolled_to_consumer(classic: ClassicGroup, context: Context) -> Rolled:
    """The group with all its members in the consumer protocol. Raises `Refused`."""
    return _Roll(classic, context).run(_consumer_joins(classic), _consumer_stays)


def rolled_to_streams(
    classic: ClassicGroup,
    topology: streams_wire.Topology,
    tasks: Mapping[str, Iterable[Task]],
    context: Context,
) -> Rolled:
    """The same in the streams protocol. `tasks`: of whom the state of which tasks is on its disk."""
    return _Roll(classic, context).run(_streams_joins(classic, topology, tasks), _streams_stays)


Joins = dict[str, Struct]
Stays = Callable[[Struct, Any, dict[str, Any]], Struct]


class _Roll:
    def __init__(self, classic: ClassicGroup, context: Context) -> None:
        self._shard = GroupShard()
        self._shard.groups[classic.group_id] = classic
        self._classic = classic
        self._context = context._replace(group_configs=_OverlaidGroups(context.group_configs, HERE))
        self._heartbeats = 0
        self._changed = False

    def run(self, joins: Joins, stays: Stays) -> Rolled:
        members = self._classic.members
        ids = {name: str(joins[name].member_id) for name in members}  # type: ignore[attr-defined]
        owned: dict[str, dict[str, Any]] = {name: {} for name in members}
        last = {name: self._ask(members[name], joins[name]) for name in members}
        self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
        self._take(self._retargeted())
        settled = False
        for _ in range(MOST_ROUNDS):
            self._context = self._context._replace(now_ms=self._context.now_ms + ROUND_MS)
            self._changed = False
            for name, member in members.items():
                last[name] = self._ask(member, stays(joins[name], last[name], owned[name]))
            if not self._changed:
                settled = True
                break
        group = self._shard.groups[self._classic.group_id]
        return Rolled(group, ids, settled, self._heartbeats)

    def _ask(self, member: Member, request: Struct) -> Any:
        context = self._context._replace(
            client_id=member.client_id, client_host=member.client_host, api_version=1
        )
        outcome = self._shard.handle(request, context)
        self._take(outcome)
        self._heartbeats += 1
        answer = outcome.replies[0].response
        if answer.error_code:
            raise Refused(answer.error_message or f"error {answer.error_code}")
        return answer

    def _take(self, outcome: Outcome) -> None:
        for record in (*outcome.records, *outcome.soft_records):
            self._shard.replay(record)
        self._changed = self._changed or bool(outcome.records)

    def _retargeted(self) -> Outcome:
        """What follows as the epoch moves."""
        group: Any = self._shard.groups[self._classic.group_id]
        member = next(iter(group.members.values()))
        try:
            if isinstance(group, StreamsGroup):
                step = StreamsStep(group, self._context)
                step.bump()
                assert group.soft.configured is not None  # A member was heard of.
                retarget_tasks(step, member, group.soft.configured, None, [])
                return step.outcome()
            consumer_step = ConsumerStep(group, self._context)
            consumer_step.bump(group.metadata_hash)
            retarget_partitions(consumer_step, member, member)
            return consumer_step.outcome()
        except GroupError as refused:
            raise Refused(refused.message or str(refused)) from None


def _id_of(member: Member) -> str:
    return member.member_id if member.instance_id is None else member.member_id + BACK


# --- consumer groups -------------------------------------------------------------------------------


def _consumer_joins(classic: ClassicGroup) -> Joins:
    joins: Joins = {}
    for name, member in classic.members.items():
        said = read_subscription(member.metadata(classic.protocol))
        assert said is not None  # Checked: it can be read.
        joins[name] = consumer_wire.ConsumerGroupHeartbeatRequest(
            group_id=classic.group_id,
            member_id=_id_of(member),
            member_epoch=0,
            instance_id=member.instance_id,
            rack_id=said.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topic_names=tuple(sorted(said.topics)),
            topic_partitions=(),
        )
    return joins


def _consumer_stays(join: Any, answer: Any, owned: dict[str, Any]) -> Struct:
    if answer.assignment is not None:
        owned["partitions"] = answer.assignment.topic_partitions
    return consumer_wire.ConsumerGroupHeartbeatRequest(
        group_id=join.group_id,
        member_id=join.member_id,
        member_epoch=answer.member_epoch,
        instance_id=join.instance_id,
        topic_partitions=owned.get("partitions", ()),
    )


def partitions_of(rolled: Rolled) -> dict[str, frozenset[tuple[Uuid, int]]]:
    """What each is meant to have, by the member ids from before."""
    targets = rolled.group.targets
    return {
        before: frozenset((topic, p) for topic, some in targets.get(now, {}).items() for p in some)
        for before, now in rolled.ids.items()
    }


# --- streams groups --------------------------------------------------------------------------------


def _streams_joins(
    classic: ClassicGroup, topology: streams_wire.Topology, tasks: Mapping[str, Iterable[Task]]
) -> Joins:
    stateful = {each.subtopology_id for each in topology.subtopologies if each.state_changelog_topics}
    joins: Joins = {}
    for name, member in classic.members.items():
        said = read_metadata(member.metadata(STREAM))
        at = said.info.endpoint
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
            rack_id=said.subscription.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology=topology,
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=said.info.process_id,
            user_endpoint=None if at is None else streams_wire.Endpoint(host=at[0], port=at[1]),
            client_tags=tuple(streams_wire.KeyValue(key=k, value=v) for k, v in said.info.client_tags),
            task_offsets=offsets,
            task_end_offsets=offsets,
        )
    return joins


ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


def _streams_stays(join: Any, answer: Any, owned: dict[str, Any]) -> Struct:
    for role in ROLES:
        told = getattr(answer, role)
        if told is not None:
            owned[role] = told
    return streams_wire.StreamsGroupHeartbeatRequest(
        group_id=join.group_id,
        member_id=join.member_id,
        member_epoch=answer.member_epoch,
        endpoint_information_epoch=answer.endpoint_information_epoch,
        instance_id=join.instance_id,
        **{role: owned.get(role, ()) for role in ROLES},
    )


def tasks_of(rolled: Rolled, role: str) -> dict[str, frozenset[Task]]:
    """What each is meant to have in a role (`active`, `standby`, `warmup`), by the member ids from before."""
    group = rolled.group
    return {
        before: frozenset(
            (name, p) for name, some in getattr(group.target_of(now), role).items() for p in some
        )
        for before, now in rolled.ids.items()
    }
