"""Records of consumer groups (KIP-848) in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int32, int64, string, struct, uuid
from konvene.codec.uuid import Uuid


class ConsumerGroupMetadataKey(Struct, key=3, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class ConsumerGroupMetadataValue(Struct, key=3, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    """Epoch of the group."""
    metadata_hash: int = int64("0+", tag=0)
    """Hash of the metadata of the subscribed topics."""


class ConsumerGroupPartitionMetadataKey(Struct, key=4, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    """Partition number."""
    racks: tuple[str, ...] = array(string, "0+")
    """Racks of the partition's replicas."""


class TopicMetadata(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    topic_name: str = string("0+")
    """Name of the topic."""
    num_partitions: int = int32("0+")
    """Number of partitions."""
    partition_metadata: tuple[PartitionMetadata, ...] = array(PartitionMetadata, "0+")
    """Racks, by partition."""


class ConsumerGroupPartitionMetadataValue(Struct, key=4, versions="0", flexible="0+"):
    topics: tuple[TopicMetadata, ...] = array(TopicMetadata, "0+")
    """Topics and their partitions."""


class ConsumerGroupMemberMetadataKey(Struct, key=5, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class ClassicProtocol(Struct):
    name: str = string("0+")
    """Name of the protocol."""
    metadata: bytes = bytes_("0+")
    """Metadata of the member for the protocol."""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    """Time without a heartbeat after which the member is removed, in milliseconds."""
    supported_protocols: tuple[ClassicProtocol, ...] = array(ClassicProtocol, "0+")
    """Protocols that the member supports."""


class ConsumerGroupMemberMetadataValue(Struct, key=5, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    """Instance id of a static member; None for a dynamic one."""
    rack_id: str | None = string("0+", nullable="0+")
    """Rack of the member; None if it is not configured."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    """Names of the topics that the member subscribes to."""
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    """RE2J pattern of the topics that the member subscribes to."""
    rebalance_timeout_ms: int = int32("0+", default=-1)
    """Time that the member has for a rebalance, in milliseconds."""
    server_assignor: str | None = string("0+", nullable="0+")
    """Server-side assignor that the member prefers; None leaves it to the broker."""
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )
    """Session timeout and protocols of a member that uses the classic protocol."""


class ConsumerGroupTargetAssignmentMetadataKey(Struct, key=6, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class ConsumerGroupTargetAssignmentMetadataValue(Struct, key=6, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    """Group epoch for which the target assignment was computed."""
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)
    """Time when the assignment was computed, in milliseconds."""


class ConsumerGroupTargetAssignmentMemberKey(Struct, key=7, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ConsumerGroupTargetAssignmentMemberValue(Struct, key=7, versions="0", flexible="0+"):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")
    """Assigned partitions, by topic."""


class ConsumerGroupCurrentMemberAssignmentKey(Struct, key=8, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""
    assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)
    """Epoch in which each partition or task was assigned."""


class ConsumerGroupCurrentMemberAssignmentValue(Struct, key=8, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    """Epoch of the member."""
    previous_member_epoch: int = int32("0+")
    """Epoch of the member before its last change."""
    state: int = int8("0+")
    """State of the member in its reconciliation."""
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    """Partitions that the member owns, by topic."""
    partitions_pending_revocation: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    """Partitions that the member still has to revoke, by topic."""


class ConsumerGroupRegularExpressionKey(Struct, key=16, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    regular_expression: str = string("0")
    """Pattern that members subscribe to."""


class ConsumerGroupRegularExpressionValue(Struct, key=16, versions="0", flexible="0+"):
    topics: tuple[str, ...] = array(string, "0+")
    """Names of the topics that match."""
    version: int = int64("0+")
    """Version of the cluster metadata with which the pattern was resolved."""
    timestamp: int = int64("0+")
    """Time when the pattern was resolved, in milliseconds."""
