"""Records of share groups (KIP-932) in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class ShareGroupMemberMetadataKey(Struct, key=10, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class ShareGroupMemberMetadataValue(Struct, key=10, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    """Rack of the client; None or empty if it is not configured."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    """Names of the topics that the member subscribes to."""


class ShareGroupMetadataKey(Struct, key=11, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class ShareGroupMetadataValue(Struct, key=11, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    """Epoch of the group."""
    metadata_hash: int = int64("0+")
    """Hash of the metadata of the subscribed topics."""


class ShareGroupTargetAssignmentMetadataKey(Struct, key=12, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class ShareGroupTargetAssignmentMetadataValue(Struct, key=12, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    """Group epoch for which the target assignment was computed."""
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)
    """Time when the assignment was computed, in milliseconds."""


class ShareGroupTargetAssignmentMemberKey(Struct, key=13, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ShareGroupTargetAssignmentMemberValue(Struct, key=13, versions="0", flexible="0+"):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")
    """Assigned partitions, by topic."""


class ShareGroupCurrentMemberAssignmentKey(Struct, key=14, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ShareGroupCurrentMemberAssignmentValue(Struct, key=14, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    """Epoch of the member."""
    previous_member_epoch: int = int32("0+")
    """Epoch of the member before its last change."""
    state: int = int8("0+")
    """State of the member in its reconciliation."""
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    """Partitions that the member owns, by topic."""


class ShareGroupStatePartitionMetadataKey(Struct, key=15, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class TopicInfo(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    topic_name: str = string("0+")
    """Name of the topic."""


class ShareGroupStatePartitionMetadataValue(Struct, key=15, versions="0", flexible="0+"):
    initializing_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    """Share partitions whose state is being initialized."""
    initialized_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    """Share partitions whose state is initialized."""
    deleting_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    """Topics whose share state is being deleted."""
