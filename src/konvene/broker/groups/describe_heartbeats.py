"""Adds the members' heartbeat intervals to describe responses, as a tagged field.

Only responses to requests that contain the tag have the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.tagged_fields import Described, add_tagged_field
from konvene.codec.schema import Struct
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.group import is_waiting
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.heartbeat import waits as waits_in_share_group
from konvene.messages.heartbeat_extensions import HEARTBEAT_EXTENSION, HeartbeatExtension, MemberHeartbeat

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.settings import BrokerSettings


def with_extension(
    settings: BrokerSettings,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    request: Struct,
    described: list[Described],
) -> list[Described]:
    """Add the members' heartbeat intervals to groups described without error, if the request has the tag."""
    return add_tagged_field(
        HEARTBEAT_EXTENSION,
        request,
        described,
        lambda group_id: _extension(settings, heartbeat_purgatory, groups, group_id),
    )


def _extension(
    settings: BrokerSettings,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    group_id: str,
) -> HeartbeatExtension:
    group = groups.find(group_id)
    held = heartbeat_purgatory.held_of(group_id)
    members = () if group is None else tuple(
        MemberHeartbeat(
            member_id=member.member_id,
            interval_ms=_advised_interval_ms(settings, groups, group, member.member_id),
            is_held=member.member_id in held,
        )
        for member in group.members.values()
    )  # fmt: skip
    return HeartbeatExtension(policy=str(settings.config["konvene.heartbeat.policy"]), members=members)


def _advised_interval_ms(
    settings: BrokerSettings, groups: GroupCoordinators, group: Group, member_id: str
) -> int:
    """Return the heartbeat interval in responses to the member, or -1 if its responses have no such field."""
    if isinstance(group, ConsumerGroup) and group.members[member_id].classic is None:
        waits = is_waiting(group.members[member_id], group.epoch, group.assignment_epoch)
    elif isinstance(group, ShareGroup):
        waits = waits_in_share_group(group, group.members[member_id])
    else:
        return -1
    return heartbeat_interval_ms(
        settings.group_configs.of(group.group_id)[f"{group_type_of(group).name}.heartbeat.interval.ms"],
        settings.config,
        groups.members,
        waits=waits,
        member_id=member_id,
    )
