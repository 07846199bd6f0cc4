"""Extension of group descriptions: the heartbeat policy, and the members' heartbeat intervals and ages.

Kafka's descriptions have no field for them, so the extension is a tagged field with a number that Kafka does
not use. A client that sends the tag, empty, with ConsumerGroupDescribe, ShareGroupDescribe,
StreamsGroupDescribe or DescribeGroups (version 5 and later) receives the extension with each group; any other
client receives Kafka's response. Other brokers ignore the tag.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int32, int64, string

HEARTBEAT_EXTENSION = 27_503
"""Number of the tagged field, in the request and in each described group."""

REQUEST_FIELD = (HEARTBEAT_EXTENSION, b"")


class MemberHeartbeat(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    interval_ms: int = int32("0+", default=-1)
    """Heartbeat interval of its next response, in milliseconds; -1 for a member of the classic protocol."""
    is_held: bool = boolean("0+")
    """True while the broker holds the member's heartbeat because there is nothing to report."""
    age_ms: int = int64("0+", default=-1, tag=0)
    """Time since the member's last heartbeat, in milliseconds; -1 if it is unknown."""


class HeartbeatExtension(Struct, versions="0", flexible="0+"):
    policy: str = string("0+")
    """Heartbeat policy of the group."""
    members: tuple[MemberHeartbeat, ...] = array(MemberHeartbeat, "0+")
    """Heartbeats, by member."""
