"""Share groups (KIP-932), in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class ShareGroupMemberMetadataKey(Struct, key=10, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Struct, key=10, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")


class ShareGroupMetadataKey(Struct, key=11, versions="0"):
    group_id: str = string("0")


class ShareGroupMetadataValue(Struct, key=11, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


class ShareGroupTargetAssignmentMetadataKey(Struct, key=12, versions="0"):
    group_id: str = string("0")


class ShareGroupTargetAssignmentMetadataValue(Struct, key=12, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Struct, key=13, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ShareGroupTargetAssignmentMemberValue(Struct, key=13, versions="0", flexible="0+"):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")


class ShareGroupCurrentMemberAssignmentKey(Struct, key=14, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ShareGroupCurrentMemberAssignmentValue(Struct, key=14, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class ShareGroupStatePartitionMetadataKey(Struct, key=15, versions="0"):
    group_id: str = string("0")


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class TopicInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(Struct, key=15, versions="0", flexible="0+"):
    initializing_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    initialized_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    deleting_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
