"""Streams groups (KIP-1071), in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, struct, uint16
from konvene.records.consumer import ClassicMemberMetadata

CLASSIC_MEMBER_METADATA_TAG = 10_000
"""Far from Kafka's own tags: Apache Kafka 4.4 has no classic members in streams groups, and reads over it."""


class StreamsGroupMetadataKey(Struct, key=17, versions="0"):
    group_id: str = string("0")


class LastAssignmentConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMetadataValue(Struct, key=17, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1
    )
    stored_description_topology_epoch: int = int32("0+", default=-1, tag=2)
    failed_description_topology_epoch: int = int32("0+", default=-1, tag=3)


class StreamsGroupMemberMetadataKey(Struct, key=19, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMemberMetadataValue(Struct, key=19, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    client_tags: tuple[KeyValue, ...] = array(KeyValue, "0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=CLASSIC_MEMBER_METADATA_TAG
    )


class StreamsGroupTargetAssignmentMetadataKey(Struct, key=20, versions="0"):
    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Struct, key=20, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Struct, key=21, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class StreamsGroupTargetAssignmentMemberValue(Struct, key=21, versions="0", flexible="0+"):
    active_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    standby_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    warmup_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")


class StreamsGroupCurrentMemberAssignmentKey(Struct, key=22, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TaskIdsWithEpochs(Struct):
    subtopology_id: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")
    assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Struct, key=22, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    standby_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    warmup_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    active_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    standby_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    warmup_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")


class StreamsGroupTopologyKey(Struct, key=23, versions="0"):
    group_id: str = string("0")


class TopicConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: tuple[TopicConfig, ...] = array(TopicConfig, "0+")


class CopartitionGroup(Struct):
    source_topics: tuple[int, ...] = array(int16, "0+")
    source_topic_regex: tuple[int, ...] = array(int16, "0+")
    repartition_source_topics: tuple[int, ...] = array(int16, "0+")


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: tuple[str, ...] = array(string, "0+")
    source_topic_regex: tuple[str, ...] = array(string, "0+")
    state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    repartition_sink_topics: tuple[str, ...] = array(string, "0+")
    repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    copartition_groups: tuple[CopartitionGroup, ...] = array(CopartitionGroup, "0+")


class StreamsGroupTopologyValue(Struct, key=23, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    subtopologies: tuple[Subtopology, ...] = array(Subtopology, "0+")
