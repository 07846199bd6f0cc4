"""ListPartitionReassignments (API key 46): which partitions are being moved."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    partition_indexes: tuple[int, ...] = array(int32, "0+")


class ListPartitionReassignmentsRequest(Struct, key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: tuple[int, ...] = array(int32, "0+")
    adding_replicas: tuple[int, ...] = array(int32, "0+")
    removing_replicas: tuple[int, ...] = array(int32, "0+")


class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    partitions: tuple[OngoingPartitionReassignment, ...] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Struct, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: tuple[OngoingTopicReassignment, ...] = array(OngoingTopicReassignment, "0+")
