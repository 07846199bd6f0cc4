"""Members of the classic protocol in a consumer group."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.asking import join_request

from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.shard.contract import Context
from konvene.shard.errors import GroupError


def context(version: int) -> Context:
    config, _ = BrokerConfig.load(overrides=[("group.consumer.assignment.interval.ms", "0")])
    return Context(
        1_000_000,
        config,
        api_version=version,
        client_id="x",
        fresh_ids=("fresh",),
        group_configs=GroupConfigs(config),
    )


def shard_with_one_member() -> GroupShard:
    """Return a shard with a consumer group of one static member."""
    shard = GroupShard()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        instance_id="i1",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    for record in shard.handle(request, context(1)).records:
        shard.replay(record)
    assert shard.groups["g"].epoch == 2
    return shard


@pytest.mark.parametrize(
    ("instance_id", "more", "error"),
    [
        ("i1", {}, Errors.FENCED_INSTANCE_ID),
        ("i2", {}, Errors.UNKNOWN_MEMBER_ID),
        (None, {"protocol_type": "connect"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_refused_for_the_groups_state_is_answered_without_the_member_id(
    instance_id: str | None, more: dict[str, Any], error: Errors
) -> None:
    """Kafka returns the member id only with refusals that do not depend on the group; those are raised
    here."""
    shard = shard_with_one_member()
    outcome = shard.handle(join_request("x", instance_id, **more), context(9))
    (reply,) = outcome.replies
    assert (error, "", None) == (
        reply.response.error_code,
        reply.response.member_id,
        reply.response.protocol_name,
    )
    assert (outcome.records, outcome.timers) == ((), ())
    with pytest.raises(GroupError, match="INVALID_SESSION_TIMEOUT"):
        shard.handle(join_request("x", instance_id, session_timeout_ms=1), context(9))


def test_a_static_member_returning_with_the_classic_protocol_is_removed_once() -> None:
    """Its old id is removed on replacement; its new id is removed with the consumer group, before the
    group."""
    shard = shard_with_one_member()
    outcome = shard.handle(join_request("", "i1"), context(9))
    tombstones = [
        (type(r.key).__name__.removesuffix("Key"), getattr(r.key, "member_id", None))
        for r in outcome.records
        if r.value is None
    ]
    members = ("CurrentMemberAssignment", "TargetAssignmentMember", "MemberMetadata")
    current, target, metadata = (f"ConsumerGroup{kind}" for kind in members)
    assert tombstones == [
        *((kind, "a") for kind in (current, target, metadata)),
        *((kind, "fresh") for kind in (current, target)),
        ("ConsumerGroupTargetAssignmentMetadata", None),
        (metadata, "fresh"),
        ("ConsumerGroupPartitionMetadata", None),
        ("ConsumerGroupMetadata", None),
    ]
    for record in outcome.records:
        shard.replay(record)
    assert list(shard.groups["g"].members) == ["fresh"]
