"""Adds the members' heartbeat intervals to describe responses, as a tagged field.

Only responses to requests that contain the tag have the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.group import is_waiting
from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.heartbeat import waits as waits_in_share_group
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_describe import DescribedGroup as ConsumerDescribed
from konvene.messages.describe_groups import DescribedGroup as ClassicDescribed
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_extensions import HEARTBEAT_EXTENSION, HeartbeatExtension, MemberHeartbeat
from konvene.messages.share_group_describe import DescribedGroup as ShareDescribed
from konvene.messages.share_group_describe import ShareGroupDescribeRequest

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.settings import BrokerSettings

Described = TypeVar("Described", ClassicDescribed, ConsumerDescribed, ShareDescribed)

DescribeRequest = ConsumerGroupDescribeRequest | DescribeGroupsRequest | ShareGroupDescribeRequest


def with_extension(
    settings: BrokerSettings,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    request: DescribeRequest,
    described: list[Described],
) -> list[Described]:
    """Add the tagged field to each group described without error, if the request has the tag."""
    if all(tag != HEARTBEAT_EXTENSION for tag, _ in request.unknown_tags):
        return described
    return [
        group.replace(
            unknown_tags=(
                (
                    HEARTBEAT_EXTENSION,
                    encode(_extension(settings, heartbeat_purgatory, groups, group.group_id), 0),
                ),
            )
        )
        if group.error_code == Errors.NONE
        else group
        for group in described
    ]


def _extension(
    settings: BrokerSettings,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    group_id: str,
) -> HeartbeatExtension:
    coordinator = groups.of(group_id)
    shard = coordinator.core if coordinator is not None else None
    group = shard.groups.get(group_id) if isinstance(shard, GroupShard) else None
    held = heartbeat_purgatory.held_of(group_id)
    members = () if group is None else tuple(
        MemberHeartbeat(
            member_id=member.member_id,
            interval_ms=_advised_interval_ms(settings, groups, group, member),
            is_held=member.member_id in held,
        )
        for member in group.members.values()
    )  # fmt: skip
    return HeartbeatExtension(policy=str(settings.config["konvene.heartbeat.policy"]), members=members)


def _is_waiting_in_consumer_group(group: ConsumerGroup, member: Any) -> bool | None:
    if member.classic is not None:
        return None
    return is_waiting(member, group.epoch, group.assignment_epoch)


IS_WAITING: Final[Mapping[type, Callable[[Any, Any], bool | None]]] = {
    ConsumerGroup: _is_waiting_in_consumer_group,
    ShareGroup: waits_in_share_group,
}
"""By group class: returns True if a member waits for a rebalance, None if it is advised no interval."""


def _advised_interval_ms(
    settings: BrokerSettings, groups: GroupCoordinators, group: Group, member: Any
) -> int:
    """Return the heartbeat interval in responses to the member, or -1 if its responses have no such field."""
    check = IS_WAITING.get(type(group))
    waits = check(group, member) if check is not None else None
    if waits is None:
        return -1
    return heartbeat_interval_ms(
        settings.group_configs.of(group.group_id)[f"{group_type_of(group).name}.heartbeat.interval.ms"],
        settings.config,
        groups.members,
        waits=waits,
        member_id=member.member_id,
    )
