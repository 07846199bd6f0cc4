"""Adds the members' heartbeat intervals and ages to describe responses, as a tagged field.

Only responses to requests that contain the tag have the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.tagged_fields import Described, add_tagged_field
from konvene.codec.schema import Struct
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.group import is_waiting
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.heartbeat import next_interval_ms
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.heartbeat import streams_heartbeat_interval_ms
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
    """Add the members' heartbeats to groups that were described without error, if the request has the tag."""
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
            age_ms=_age_ms(settings, groups, group, member.member_id),
        )
        for member in group.members.values()
    )  # fmt: skip
    return HeartbeatExtension(policy=str(settings.config["konvene.heartbeat.policy"]), members=members)


def _advised_interval_ms(
    settings: BrokerSettings, groups: GroupCoordinators, group: Group, member_id: str
) -> int:
    """Return the heartbeat interval in responses to the member, or -1 if its responses have no such field."""
    config = settings.group_configs.of(group.group_id)
    if isinstance(group, ClassicGroup) or group.members[member_id].classic is not None:
        return -1
    if isinstance(group, ShareGroup):
        return next_interval_ms(group, group.members[member_id], config, settings.config, groups.members)
    waits = is_waiting(group.members[member_id], group.epoch, group.assignment_epoch)
    if isinstance(group, StreamsGroup):
        return streams_heartbeat_interval_ms(
            config,
            settings.config,
            groups.members,
            group.soft.configured,
            waits=waits,
            member_id=member_id,
        )
    return heartbeat_interval_ms(
        config["consumer.heartbeat.interval.ms"],
        settings.config,
        groups.members,
        waits=waits,
        member_id=member_id,
    )


def _age_ms(settings: BrokerSettings, groups: GroupCoordinators, group: Group, member_id: str) -> int:
    """Return the time since the member's session timer was armed, or -1 if it is unknown.

    The timer is armed by each heartbeat and when its response leaves the purgatory, by other requests of a
    classic member, and when the coordinator loads the group. The age follows from the deadline: until the
    next heartbeat it is off by a change of the group's session timeout."""
    if isinstance(group, ClassicGroup):
        timeout_ms = group.members[member_id].session_timeout_ms
    else:
        member = group.members[member_id]
        timeout_ms = settings.group_configs.of(group.group_id)[
            f"{group_type_of(group).name}.session.timeout.ms"
        ]
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        elif groups.is_disconnected(group.group_id, member_id):
            return -1  # Its session was shortened.
    left_ms = groups.session_left_ms(group.group_id, member_id)
    return -1 if left_ms is None or left_ms > timeout_ms else timeout_ms - max(left_ms, 0)
