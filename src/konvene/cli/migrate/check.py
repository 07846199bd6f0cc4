"""Requests of `konvene migrate check`: a group with its members, the topics and the settings of a cluster.

For classic groups DescribeGroups returns the subscription and assignment of each member. It does not return
the timeouts of members, for which `TIMEOUT_MS` is assumed. Settings that the broker does not have get
konvene's defaults, which are Kafka's behaviour."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.cli.options import fail
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.net.cluster import Cluster
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.consumer.group import ConsumerGroup
    from konvene.groups.group_type import Group
    from konvene.groups.streams.group import StreamsGroup
    from konvene.messages.describe_groups import DescribedGroup

__all__ = ["GroupState", "read_group"]

BROKER_SETTINGS = (
    "group.consumer.assignors", "group.consumer.max.size", "group.consumer.migration.policy",
    "group.max.size", "group.streams.max.size", "konvene.streams.migration.policy", "konvene.streams.mode",
)  # fmt: skip
"""Broker settings that affect the result."""

GROUP_SETTINGS = (
    "streams.assignor.name", "streams.num.standby.replicas", "streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags",
)  # fmt: skip

TIMEOUT_MS = 60_000
"""Assumed timeouts of members, which DescribeGroups does not return."""


class GroupState(NamedTuple):
    """The input of a migration check: a group, and the topics and settings of its cluster."""

    group: Group
    topics: Mapping[str, int]
    settings: tuple[tuple[str, str], ...]
    now_ms: int


async def read_group(cluster: Cluster, name: str) -> GroupState:
    """Read a group from the cluster. Raises `ClientError`, and `Failure` if the group is rebalancing."""
    from konvene.client.admin.admin import Admin

    admin = Admin(cluster)
    group = await _classic_group(cluster, name) or await _modern_group(admin, name)
    topics = {topic.name: len(topic.partitions) for topic in await admin.list_topics()}
    return GroupState(group, topics, await _settings(admin, name), int(time.time() * 1000))


async def _classic_group(cluster: Cluster, name: str) -> ClassicGroup | None:
    """Return the classic group of this name as the coordinator's object; None if there is none.

    Fails if the group is rebalancing.
    """
    from konvene.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    response: DescribeGroupsResponse = await cluster.ask_coordinator(
        name, DescribeGroupsRequest(groups=(name,)), lambda r: r.groups[0].error_code
    )
    described: DescribedGroup = response.groups[0]
    if described.error_code or described.group_state == "Dead":
        return None
    if described.group_state not in ("Stable", "Empty"):
        fail(f"group {name} is rebalancing ({described.group_state})", "Try again when it is Stable.")
    return _to_state(described)


def _to_state(described: DescribedGroup) -> ClassicGroup:
    from konvene.groups.classic.group import ClassicGroup, Member, State

    protocol = described.protocol_data or None
    state = State.STABLE if described.members else State.EMPTY
    group = ClassicGroup(described.group_id, state, generation=1, protocol=protocol)
    for m in described.members:
        group.put(
            Member(
                m.member_id, m.group_instance_id, m.client_id, m.client_host, TIMEOUT_MS, TIMEOUT_MS,
                described.protocol_type, ((protocol or "", bytes(m.member_metadata)),),
                bytes(m.member_assignment),
            )
        )  # fmt: skip
    group.protocol_type = described.protocol_type or None
    return group


async def _modern_group(admin: Admin, name: str) -> ConsumerGroup | StreamsGroup:
    """Return the consumer or streams group of this name, with the protocol that each member uses."""
    from konvene.client.errors import KafkaError
    from konvene.groups.consumer.group import ConsumerGroup
    from konvene.groups.consumer.group import Member as ConsumerMember
    from konvene.groups.modern.classic_member import ClassicProtocolMetadata
    from konvene.groups.streams.group import Member as StreamsMember
    from konvene.groups.streams.group import StreamsGroup

    classic_metadata = ClassicProtocolMetadata(TIMEOUT_MS, ())
    try:
        described = await admin.describe_group(name)
    except KafkaError as error:
        if error.code != Errors.GROUP_ID_NOT_FOUND:
            raise
        application = await admin.describe_streams_group(name)
        streams = StreamsGroup(name, application.epoch)
        for each in application.members:
            streams.members[each.member_id] = StreamsMember(
                each.member_id, each.instance_id, None, each.client_id, each.client_host,
                classic=classic_metadata if each.is_classic else None,
            )  # fmt: skip
        return streams
    group = ConsumerGroup(name, described.epoch or 0)
    for m in described.members:
        group.members[m.member_id] = ConsumerMember(
            m.member_id, m.instance_id, None, m.client_id, m.client_host,
            classic=classic_metadata if m.upgraded is False else None,
        )  # fmt: skip
    return group


async def _settings(admin: Admin, name: str) -> tuple[tuple[str, str], ...]:
    from konvene.client.admin.admin import BROKER, GROUP_CONFIG
    from konvene.client.errors import KafkaError

    found = []
    node = admin.cluster.metadata.controller_id
    for kind, resource, names in ((BROKER, str(node), BROKER_SETTINGS), (GROUP_CONFIG, name, GROUP_SETTINGS)):
        try:
            entries = await admin.describe_configs(kind, resource)
        except KafkaError as error:
            # An older broker without group settings, or missing authorization.
            if error.code not in (Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.INVALID_REQUEST):
                raise
            continue
        for each in entries:
            if each.name in names and each.value and each.source != "DEFAULT_CONFIG":
                found.append((each.name, each.value))
    return tuple(found)
