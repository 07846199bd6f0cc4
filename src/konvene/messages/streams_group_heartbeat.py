"""StreamsGroupHeartbeat (API key 88): session and state of a streams group member (KIP-1071).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
GROUP_MAX_SIZE_REACHED, GROUP_ID_NOT_FOUND, STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH,
STREAMS_TOPOLOGY_FENCED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, int64, string, struct, uint16


class KeyValue(Struct):
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
    topic_configs: tuple[KeyValue, ...] = array(KeyValue, "0+")
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


class Topology(Struct):
    epoch: int = int32("0+")
    """Epoch of the topology."""
    subtopologies: tuple[Subtopology, ...] = array(Subtopology, "0+")
    """Subtopologies of the topology."""


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers of the tasks."""


class Endpoint(Struct):
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""


class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    partition: int = int32("0+")
    """Partition number."""
    offset: int = int64("0+")
    """Offset in the task's changelogs."""


class StreamsGroupHeartbeatRequest(Struct, key=88, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    member_id: str = string("0+")
    """Id of the member."""
    member_epoch: int = int32("0+")
    """Epoch of the member; 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    endpoint_information_epoch: int = int32("0+")
    """Epoch of the endpoint information that the member knows."""
    instance_id: str | None = string("0+", nullable="0+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    rack_id: str | None = string("0+", nullable="0+", default=None)
    """Rack of the member; None if it is not configured or unchanged."""
    rebalance_timeout_ms: int = int32("0+", default=-1)
    """Time that the member has for a rebalance, in milliseconds; -1 if unchanged."""
    topology: Topology | None = struct(Topology, "0+", nullable="0+", default=None)
    """Topology that the member runs, sent when it joins; None if unchanged."""
    active_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Active tasks; None if unchanged."""
    standby_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Standby tasks; None if unchanged."""
    warmup_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Warm-up tasks; None if unchanged."""
    process_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the process that the member runs in; None if unchanged."""
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    """Endpoint for interactive queries; None if it is not configured or unchanged."""
    client_tags: tuple[KeyValue, ...] | None = array(KeyValue, "0+", nullable="0+", default=None)
    """Tags of the client, for rack-aware standby placement; None if unchanged."""
    task_offsets: tuple[TaskOffset, ...] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    """Changelog offsets of the member's tasks; None if unchanged."""
    task_end_offsets: tuple[TaskOffset, ...] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    """Changelog end offsets of the member's tasks; None if unchanged."""
    shutdown_application: bool = boolean("0+")
    """True to shut down all members of the application."""


class Status(Struct):
    status_code: int = int8("0+")
    """Number of the status."""
    status_detail: str = string("0+")
    """Explanation of the status."""


class TopicPartition(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint, "0+")
    """Endpoint of the process."""
    active_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")
    """Partitions of its active tasks."""
    standby_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")
    """Partitions of its standby tasks."""


class StreamsGroupHeartbeatResponse(Struct, key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    member_id: str = string("0+")
    """Id of the member."""
    member_epoch: int = int32("0+")
    """Epoch of the member after the heartbeat."""
    heartbeat_interval_ms: int = int32("0+")
    """Interval at which the member has to heartbeat, in milliseconds."""
    acceptable_recovery_lag_legacy: int = int32("0")
    """Lag up to which a task counts as caught up, in records (superseded by a later field)."""
    task_offset_interval_ms: int = int32("0+")
    """Interval at which the member has to report task offsets, in milliseconds."""
    acceptable_recovery_lag: int = int64("1+", default=-1, ignorable=True)
    """Lag up to which a task counts as caught up, in records."""
    status: tuple[Status, ...] | None = array(Status, "0+", nullable="0+")
    """Statuses that the member has to react to; None if unchanged."""
    active_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Active tasks; None if unchanged."""
    standby_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Standby tasks; None if unchanged."""
    warmup_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    """Warm-up tasks; None if unchanged."""
    topology_description_required: bool = boolean("1+")
    """True if the member has to send the description of its topology."""
    endpoint_information_epoch: int = int32("0+")
    """Epoch of the endpoint information."""
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = array(
        EndpointToPartitions, "0+", nullable="0+", default=None
    )
    """Partitions by endpoint, for interactive queries; None if unchanged."""
