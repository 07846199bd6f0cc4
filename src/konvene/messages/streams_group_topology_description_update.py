"""StreamsGroupTopologyDescriptionUpdate (API key 93): stores the description of a topology (KIP-1331).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STREAMS_INVALID_TOPOLOGY_EPOCH,
STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string, struct


class TopologyDescriptionNode(Struct):
    name: str = string("0+")
    """Name of the node."""
    node_type: int = int8("0+")
    """Type of the node: 0 source, 1 processor, 2 sink."""
    source_topics: tuple[str, ...] = array(string, "0+")
    """Topics that a source node reads."""
    sink_topic: str | None = string("0+", nullable="0+", default=None)
    """Topic that a sink node writes; None if it is chosen for each record."""
    stores: tuple[str, ...] = array(string, "0+")
    """Names of the state stores that the node uses."""
    successors: tuple[str, ...] = array(string, "0+")
    """Names of the nodes that follow."""


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("0+")
    """Id of the subtopology within the topology."""
    nodes: tuple[TopologyDescriptionNode, ...] = array(TopologyDescriptionNode, "0+")
    """Nodes of the subtopology."""


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")
    """Source node of the global store."""
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")
    """Processor node of the global store."""


class TopologyDescription(Struct):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = array(TopologyDescriptionSubtopology, "0+")
    """Subtopologies of the topology."""
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = array(TopologyDescriptionGlobalStore, "0+")
    """Global state stores."""


class StreamsGroupTopologyDescriptionUpdateRequest(Struct, key=93, versions="0", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    member_id: str = string("0+")
    """Id of the member."""
    topology_epoch: int = int32("0+")
    """Epoch of the described topology."""
    topology_description: TopologyDescription = struct(TopologyDescription, "0+")
    """Description of the topology."""


class StreamsGroupTopologyDescriptionUpdateResponse(Struct, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
