"""How the members of a group heartbeat, for those who ask for it with the group's description."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import Member as ConsumerMember
from konvene.groups.consumer.heartbeat import has_to_wait
from konvene.groups.intervals import told_interval_ms
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_describe import DescribedGroup as ConsumerDescribed
from konvene.messages.describe_groups import DescribedGroup as ClassicDescribed
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_notes import HEARTBEAT_NOTES, HeartbeatNote, HeartbeatNotes

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

Described = TypeVar("Described", ClassicDescribed, ConsumerDescribed)


def with_notes(
    broker: Broker, request: ConsumerGroupDescribeRequest | DescribeGroupsRequest, groups: list[Described]
) -> list[Described]:
    """The same groups; with a note on each that could be described, if the request has the tag."""
    if all(tag != HEARTBEAT_NOTES for tag, _ in request.unknown_tags):
        return groups
    return [
        group.replace(unknown_tags=((HEARTBEAT_NOTES, encode(_notes(broker, group.group_id), 0)),))
        if group.error_code == Errors.NONE
        else group
        for group in groups
    ]


def _notes(broker: Broker, group_id: str) -> HeartbeatNotes:
    coordinator = broker.groups.of(group_id)
    shard = coordinator.core if coordinator is not None else None
    group = shard.groups.get(group_id) if isinstance(shard, GroupShard) else None
    held = broker.holding.held_of(group_id)
    members = () if group is None else tuple(
        HeartbeatNote(
            member_id=member.member_id,
            told_ms=_told_ms(broker, group, member)
            if isinstance(group, ConsumerGroup) and isinstance(member, ConsumerMember)
            else -1,
            is_held=member.member_id in held,
        )
        for member in group.members.values()
    )  # fmt: skip
    return HeartbeatNotes(policy=str(broker.config["konvene.heartbeat.policy"]), members=members)


def _told_ms(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> int:
    if member.classic is not None:
        return -1
    return told_interval_ms(
        broker.group_configs.of(group.group_id)["consumer.heartbeat.interval.ms"],
        broker.config,
        broker.groups.members,
        waits=has_to_wait(member, group.epoch, group.assignment_epoch),
        member_id=member.member_id,
    )
