"""ShareGroupDescribe (API key 77): describes share groups and their members (KIP-932).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, struct, uuid
from konvene.codec.uuid import Uuid


class ShareGroupDescribeRequest(Struct, key=77, versions="1", flexible="0+"):
    group_ids: tuple[str, ...] = array(string, "0+")
    """Ids of the groups to describe."""
    include_authorized_operations: bool = boolean("0+")
    """True to include the operations that the caller may perform."""


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    """Partitions, by topic."""


class Member(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    rack_id: str | None = string("0+", nullable="0+", default=None)
    """Rack of the client; None or empty if it is not configured."""
    member_epoch: int = int32("0+")
    """Epoch of the member."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    """Names of the topics that the member subscribes to."""
    assignment: Assignment = struct(Assignment, "0+")
    """Partitions that the member is assigned."""


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    """Error of the group; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    group_id: str = string("0+")
    """Id of the group."""
    group_state: str = string("0+")
    """State of the group."""
    group_epoch: int = int32("0+")
    """Epoch of the group."""
    assignment_epoch: int = int32("0+")
    """Group epoch for which the target assignment was computed."""
    assignor_name: str = string("0+")
    """Name of the server-side assignor."""
    members: tuple[Member, ...] = array(Member, "0+")
    """Members of the group."""
    authorized_operations: int = int32("0+", default=-2147483648)
    """Bit set of the operations that the caller may perform."""


class ShareGroupDescribeResponse(Struct, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")
    """Descriptions, in the order of the request."""
