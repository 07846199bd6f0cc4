"""Records of streams groups (KIP-1071) in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, struct, uint16
from konvene.records.consumer import ClassicMemberMetadata

CLASSIC_MEMBER_METADATA_TAG = 10_000
"""Tag outside of Kafka's range: Apache Kafka 4.4 has no classic members in streams groups and ignores it."""


class StreamsGroupMetadataKey(Struct, key=17, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class LastAssignmentConfig(Struct):
    key: str = string("0+")
    """Name of the configuration."""
    value: str = string("0+")
    """Value of the configuration."""


class StreamsGroupMetadataValue(Struct, key=17, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    """Epoch of the group."""
    metadata_hash: int = int64("0+")
    """Hash of the metadata of the subscribed topics."""
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    """Epoch of the topology that was last validated; -1 if there is none."""
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1
    )
    """Configurations of the last assignment."""
    stored_description_topology_epoch: int = int32("0+", default=-1, tag=2)
    """Topology epoch of the stored description; -1 if there is none."""
    failed_description_topology_epoch: int = int32("0+", default=-1, tag=3)
    """Topology epoch whose description could not be stored; -1 if there is none."""


class StreamsGroupMemberMetadataKey(Struct, key=19, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class Endpoint(Struct):
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""


class KeyValue(Struct):
    key: str = string("0+")
    """Name of the entry."""
    value: str = string("0+")
    """Value of the entry."""


class StreamsGroupMemberMetadataValue(Struct, key=19, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    """Instance id of a static member; None for a dynamic one."""
    rack_id: str | None = string("0+", nullable="0+")
    """Rack of the member; None if it is not configured."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    rebalance_timeout_ms: int = int32("0+", default=-1)
    """Time that the member has for a rebalance, in milliseconds."""
    topology_epoch: int = int32("0+")
    """Epoch of the topology that the member runs."""
    process_id: str = string("0+")
    """Id of the process that the member runs in."""
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    """Endpoint for interactive queries; None if it is not configured."""
    client_tags: tuple[KeyValue, ...] = array(KeyValue, "0+")
    """Tags of the client, for rack-aware standby placement."""
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=CLASSIC_MEMBER_METADATA_TAG
    )
    """Session timeout and protocols of a member that uses the classic protocol."""


class StreamsGroupTargetAssignmentMetadataKey(Struct, key=20, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class StreamsGroupTargetAssignmentMetadataValue(Struct, key=20, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    """Group epoch for which the target assignment was computed."""
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)
    """Time when the assignment was computed, in milliseconds."""


class StreamsGroupTargetAssignmentMemberKey(Struct, key=21, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers of the tasks."""


class StreamsGroupTargetAssignmentMemberValue(Struct, key=21, versions="0", flexible="0+"):
    active_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Active tasks, by subtopology."""
    standby_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Standby tasks, by subtopology."""
    warmup_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Warm-up tasks, by subtopology."""


class StreamsGroupCurrentMemberAssignmentKey(Struct, key=22, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    member_id: str = string("0")
    """Id of the member."""


class TaskIdsWithEpochs(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers of the tasks."""
    assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)
    """Epoch in which each partition or task was assigned."""


class StreamsGroupCurrentMemberAssignmentValue(Struct, key=22, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    """Epoch of the member."""
    previous_member_epoch: int = int32("0+")
    """Epoch of the member before its last change."""
    state: int = int8("0+")
    """State of the member in its reconciliation."""
    active_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Active tasks, by subtopology."""
    standby_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Standby tasks, by subtopology."""
    warmup_tasks: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Warm-up tasks, by subtopology."""
    active_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Active tasks that the member still has to revoke."""
    standby_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Standby tasks that the member still has to revoke."""
    warmup_tasks_pending_revocation: tuple[TaskIdsWithEpochs, ...] = array(TaskIdsWithEpochs, "0+")
    """Warm-up tasks that the member still has to revoke."""


class StreamsGroupTopologyKey(Struct, key=23, versions="0"):
    group_id: str = string("0")
    """Id of the group."""


class TopicConfig(Struct):
    key: str = string("0+")
    """Name of the entry."""
    value: str = string("0+")
    """Value of the entry."""


class TopicInfo(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: int = int32("0+")
    """Number of partitions; 0 if it depends on the source topics."""
    replication_factor: int = int16("0+")
    """Replication factor; 0 or -1 stands for the broker's default."""
    topic_configs: tuple[TopicConfig, ...] = array(TopicConfig, "0+")
    """Configurations of the topic."""


class CopartitionGroup(Struct):
    source_topics: tuple[int, ...] = array(int16, "0+")
    """Indexes of the subtopology's source topics."""
    source_topic_regex: tuple[int, ...] = array(int16, "0+")
    """Indexes of the subtopology's source topic patterns."""
    repartition_source_topics: tuple[int, ...] = array(int16, "0+")
    """Indexes of the subtopology's repartition source topics."""


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    source_topics: tuple[str, ...] = array(string, "0+")
    """Names of the topics that are read as input."""
    source_topic_regex: tuple[str, ...] = array(string, "0+")
    """Patterns of the topics that are read as input."""
    state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    """Changelog topics of the state stores."""
    repartition_sink_topics: tuple[str, ...] = array(string, "0+")
    """Repartition topics that are written."""
    repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    """Repartition topics that are read as input."""
    copartition_groups: tuple[CopartitionGroup, ...] = array(CopartitionGroup, "0+")
    """Groups of topics that must have the same number of partitions."""


class StreamsGroupTopologyValue(Struct, key=23, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    """Epoch of the topology."""
    subtopologies: tuple[Subtopology, ...] = array(Subtopology, "0+")
    """Subtopologies of the topology."""
