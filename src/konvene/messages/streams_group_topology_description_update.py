"""StreamsGroupTopologyDescriptionUpdate (API key 93): what a topology looks like."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string, struct


class TopologyDescriptionNode(Struct):
    name: str = string("0+")
    node_type: int = int8("0+")
    source_topics: tuple[str, ...] = array(string, "0+")
    sink_topic: str | None = string("0+", nullable="0+", default=None)
    stores: tuple[str, ...] = array(string, "0+")
    successors: tuple[str, ...] = array(string, "0+")


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("0+")
    nodes: tuple[TopologyDescriptionNode, ...] = array(TopologyDescriptionNode, "0+")


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")


class TopologyDescription(Struct):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = array(TopologyDescriptionSubtopology, "0+")
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = array(TopologyDescriptionGlobalStore, "0+")


class StreamsGroupTopologyDescriptionUpdateRequest(Struct, key=93, versions="0", flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    topology_epoch: int = int32("0+")
    topology_description: TopologyDescription = struct(TopologyDescription, "0+")


class StreamsGroupTopologyDescriptionUpdateResponse(Struct, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
