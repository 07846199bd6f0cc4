"""StreamsGroupDescribe (API key 89): describes streams groups, their topology and members (KIP-1071).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, int64, string, struct, uint16


class StreamsGroupDescribeRequest(Struct, key=89, versions="0-1", flexible="0+"):
    group_ids: tuple[str, ...] = array(string, "0+")
    """Ids of the groups to describe."""
    include_authorized_operations: bool = boolean("0+")
    """True to include the operations that the caller may perform."""
    include_topology_description: bool = boolean("1+")
    """True to include the description of the topology."""


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


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    source_topics: tuple[str, ...] = array(string, "0+")
    """Names of the topics that are read as input."""
    repartition_sink_topics: tuple[str, ...] = array(string, "0+")
    """Repartition topics that are written."""
    state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    """Changelog topics of the state stores."""
    repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    """Repartition topics that are read as input."""


class Topology(Struct):
    epoch: int = int32("0+")
    """Epoch of the topology."""
    subtopologies: tuple[Subtopology, ...] | None = array(Subtopology, "0+", nullable="0+", default=None)
    """Subtopologies; None before they are configured."""


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


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers of the tasks."""


class Assignment(Struct):
    active_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Active tasks, by subtopology."""
    standby_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Standby tasks, by subtopology."""
    warmup_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Warm-up tasks, by subtopology."""


class Member(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    member_epoch: int = int32("0+")
    """Epoch of the member."""
    instance_id: str | None = string("0+", nullable="0+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    rack_id: str | None = string("0+", nullable="0+", default=None)
    """Rack of the client; None or empty if it is not configured."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    topology_epoch: int = int32("0+")
    """Epoch of the topology that the member runs."""
    process_id: str = string("0+")
    """Id of the process that the member runs in."""
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    """Endpoint for interactive queries; None if it is not configured."""
    client_tags: tuple[KeyValue, ...] = array(KeyValue, "0+")
    """Tags of the client, for rack-aware standby placement."""
    task_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
    """Changelog offsets of the member's tasks."""
    task_end_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
    """Changelog end offsets of the member's tasks."""
    assignment: Assignment = struct(Assignment, "0+")
    """Tasks that the member owns."""
    target_assignment: Assignment = struct(Assignment, "0+")
    """Target assignment of the member."""
    is_classic: bool = boolean("0+")
    """True for a member that uses the classic protocol."""


class TopologyDescriptionNode(Struct):
    name: str = string("1+")
    """Name of the node."""
    node_type: int = int8("1+")
    """Type of the node: 0 source, 1 processor, 2 sink."""
    source_topics: tuple[str, ...] = array(string, "1+")
    """Topics that a source node reads."""
    sink_topic: str | None = string("1+", nullable="1+", default=None)
    """Topic that a sink node writes; None if it is chosen for each record."""
    stores: tuple[str, ...] = array(string, "1+")
    """Names of the state stores that the node uses."""
    successors: tuple[str, ...] = array(string, "1+")
    """Names of the nodes that follow."""


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("1+")
    """Id of the subtopology within the topology."""
    nodes: tuple[TopologyDescriptionNode, ...] = array(TopologyDescriptionNode, "1+")
    """Nodes of the subtopology."""


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+")
    """Source node of the global store."""
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+")
    """Processor node of the global store."""


class TopologyDescription(Struct):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = array(TopologyDescriptionSubtopology, "1+")
    """Subtopologies of the topology."""
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = array(TopologyDescriptionGlobalStore, "1+")
    """Global state stores."""


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
    topology: Topology | None = struct(Topology, "0+", nullable="0+", default=None)
    """Topology of the group; None if it has none."""
    members: tuple[Member, ...] = array(Member, "0+")
    """Members of the group."""
    authorized_operations: int = int32("0+", default=-2147483648)
    """Bit set of the operations that the caller may perform."""
    topology_description: TopologyDescription | None = struct(
        TopologyDescription, "1+", nullable="1+", default=None
    )
    """Description of the topology; None if it is not available."""
    topology_description_status: int = int8("1+")
    """Status of the description: not stored, available or failed."""
    assignor_name: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    """Name of the server-side assignor."""


class StreamsGroupDescribeResponse(Struct, key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")
    """Descriptions, in the order of the request."""
