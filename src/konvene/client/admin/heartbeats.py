"""Heartbeat statistics of members, which konvene brokers add to the description of a group."""

from __future__ import annotations

from typing import NamedTuple

from konvene.client.errors import BadResponse
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.messages.heartbeat_extensions import HEARTBEAT_EXTENSION, HeartbeatExtension


class Heartbeats(NamedTuple):
    """Heartbeat statistics of a member, as a konvene broker reports them."""

    interval_ms: int | None
    """Heartbeat interval of its next response; None for a member of the classic protocol."""
    held: bool
    """Whether the broker holds a heartbeat of the member that has nothing new to report."""
    age_ms: int | None = None
    """Time since its last heartbeat; None if the broker does not know it."""


class GroupHeartbeats(NamedTuple):
    """Heartbeat policy of a group, and the heartbeats of its members by member id."""

    policy: str
    members: dict[str, Heartbeats]


def decode_heartbeats(group: Struct, group_id: str) -> GroupHeartbeats | None:
    """Return the statistics that a konvene broker adds to a described group; None if they are absent.

    Raises `BadResponse` if they cannot be decoded."""
    for tag, data in group.unknown_tags:
        if tag == HEARTBEAT_EXTENSION:
            try:
                extension: HeartbeatExtension = decode(HeartbeatExtension, 0, data)
            except CodecError as error:
                raise BadResponse(f"group {group_id}, heartbeat statistics: {error}") from error
            return GroupHeartbeats(
                extension.policy,
                {
                    m.member_id: Heartbeats(_known(m.interval_ms), m.is_held, _known(m.age_ms))
                    for m in extension.members
                },
            )
    return None


def _known(number: int) -> int | None:
    return number if number >= 0 else None
