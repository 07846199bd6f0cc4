"""ShareGroupHeartbeat (API key 76): session and state of a share group member (KIP-932).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED,
GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, struct, uuid
from konvene.codec.uuid import Uuid


class ShareGroupHeartbeatRequest(Struct, key=76, versions="1", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    member_id: str = string("0+")
    """Id of the member."""
    member_epoch: int = int32("0+")
    """Epoch of the member; 0 joins, -1 leaves."""
    rack_id: str | None = string("0+", nullable="0+", default=None)
    """Rack of the member; None if it is not configured or unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = array(string, "0+", nullable="0+", default=None)
    """Names of the subscribed topics; None if unchanged."""


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    """Assigned partitions, by topic."""


class ShareGroupHeartbeatResponse(Struct, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    member_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the member; None if it is unknown."""
    member_epoch: int = int32("0+")
    """Epoch of the member after the heartbeat."""
    heartbeat_interval_ms: int = int32("0+")
    """Interval at which the member has to heartbeat, in milliseconds."""
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)
    """Assignment of the member; None if unchanged."""
