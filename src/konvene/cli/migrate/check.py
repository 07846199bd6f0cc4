"""What `konvene migrate check` asks a cluster: a group as its members left it, the topics, the settings.

DescribeGroups has of each member what it said as it joined and what it was given, which is all that a log
keeps of it but for its timeouts. A cluster that is not ours has not all of the settings; those that it does
not have are at our defaults, which are Kafka's behaviour.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.cli.options import fail
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.net.cluster import Cluster
    from konvene.groups.consumer.group import ConsumerGroup
    from konvene.groups.streams.group import StreamsGroup
    from konvene.messages.describe_groups import DescribedGroup

__all__ = ["Asked", "found_in"]

OF_BROKER = (
    "group.consumer.assignors", "group.consumer.max.size", "group.consumer.migration.policy",
    "group.max.size", "group.streams.max.size", "konvene.streams.migration.policy", "konvene.streams.mode",
)  # fmt: skip
"""Settings on which the answer rests."""

OF_GROUP = (
    "streams.assignor.name", "streams.num.standby.replicas", "streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags",
)  # fmt: skip

TIMEOUT_MS = 60_000
"""Of members, which DescribeGroups does not tell."""


class Asked(NamedTuple):
    """What the cluster tells."""

    group: Any
    topics: Mapping[str, int]
    settings: tuple[tuple[str, str], ...]
    now_ms: int


async def found_in(cluster: Cluster, name: str) -> Asked:
    """A group of the cluster, and what is around it. Raises `ClientError`; `Failure` while it rebalances."""
    from konvene.client.admin.admin import Admin

    admin = Admin(cluster)
    group = await _classic(cluster, name) or await _other(admin, name)
    topics = {topic.name: len(topic.partitions) for topic in await admin.list_topics()}
    return Asked(group, topics, await _settings(admin, name), int(time.time() * 1000))


async def _classic(cluster: Cluster, name: str) -> Any:
    """None where there is no classic group of this name."""
    from konvene.messages.describe_groups import DescribeGroupsRequest

    answer = await cluster.ask_coordinator(
        name, DescribeGroupsRequest(groups=(name,)), lambda a: a.groups[0].error_code
    )
    told: DescribedGroup = answer.groups[0]
    if told.error_code or told.group_state == "Dead":
        return None
    if told.group_state not in ("Stable", "Empty"):
        fail(f"group {name} is rebalancing ({told.group_state})", "Ask again when it is Stable.")
    return _as_kept(told)


def _as_kept(told: DescribedGroup) -> Any:
    from konvene.groups.classic.group import ClassicGroup, Member, State

    protocol = told.protocol_data or None
    state = State.STABLE if told.members else State.EMPTY
    group = ClassicGroup(told.group_id, state, generation=1, protocol=protocol)
    for m in told.members:
        group.put(
            Member(
                m.member_id, m.group_instance_id, m.client_id, m.client_host, TIMEOUT_MS, TIMEOUT_MS,
                told.protocol_type, ((protocol or "", bytes(m.member_metadata)),), bytes(m.member_assignment),
            )
        )  # fmt: skip
    group.protocol_type = told.protocol_type or None
    return group


async def _other(admin: Admin, name: str) -> ConsumerGroup | StreamsGroup:
    """A consumer or streams group: who of its members speaks which protocol."""
    from konvene.client.errors import KafkaError
    from konvene.groups.consumer.group import ConsumerGroup
    from konvene.groups.consumer.group import Member as ConsumerMember
    from konvene.groups.modern.classic_member import ClassicProtocolMetadata
    from konvene.groups.streams.group import Member as StreamsMember
    from konvene.groups.streams.group import StreamsGroup

    side = ClassicProtocolMetadata(TIMEOUT_MS, ())
    try:
        told = await admin.describe_group(name)
    except KafkaError as error:
        if error.code != Errors.GROUP_ID_NOT_FOUND:
            raise
        described = await admin.describe_streams_group(name)
        streams = StreamsGroup(name, described.epoch)
        for each in described.members:
            streams.members[each.member_id] = StreamsMember(
                each.member_id, each.instance_id, None, each.client_id, each.client_host,
                classic=side if each.is_classic else None,
            )  # fmt: skip
        return streams
    group = ConsumerGroup(name, told.epoch or 0)
    for m in told.members:
        group.members[m.member_id] = ConsumerMember(
            m.member_id, m.instance_id, None, m.client_id, m.client_host,
            classic=side if m.upgraded is False else None,
        )  # fmt: skip
    return group


async def _settings(admin: Admin, name: str) -> tuple[tuple[str, str], ...]:
    from konvene.client.admin.admin import BROKER, GROUP_CONFIG
    from konvene.client.errors import KafkaError

    found = []
    node = admin.cluster.metadata.controller_id
    for kind, what, wanted in ((BROKER, str(node), OF_BROKER), (GROUP_CONFIG, name, OF_GROUP)):
        try:
            entries = await admin.describe_configs(kind, what)
        except KafkaError as error:  # An older broker has no settings of groups, or we may not see them.
            if error.code not in (Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.INVALID_REQUEST):
                raise
            continue
        for each in entries:
            if each.name in wanted and each.value and each.source != "DEFAULT_CONFIG":
                found.append((each.name, each.value))
    return tuple(found)
