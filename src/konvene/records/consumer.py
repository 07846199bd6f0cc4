"""Consumer groups (KIP-848), in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int32, int64, string, struct, uuid
from konvene.codec.uuid import Uuid


class ConsumerGroupMetadataKey(Struct, key=3, versions="0"):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Struct, key=3, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Struct, key=4, versions="0"):
    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: tuple[str, ...] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: tuple[PartitionMetadata, ...] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Struct, key=4, versions="0", flexible="0+"):
    topics: tuple[TopicMetadata, ...] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Struct, key=5, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = bytes_("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    supported_protocols: tuple[ClassicProtocol, ...] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Struct, key=5, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Struct, key=6, versions="0"):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Struct, key=6, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Struct, key=7, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Struct, key=7, versions="0", flexible="0+"):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Struct, key=8, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")
    assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Struct, key=8, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    partitions_pending_revocation: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Struct, key=16, versions="0"):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Struct, key=16, versions="0", flexible="0+"):
    topics: tuple[str, ...] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")
