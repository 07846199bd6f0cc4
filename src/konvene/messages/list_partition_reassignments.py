"""ListPartitionReassignments (API key 46): lists ongoing partition reassignments.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partition_indexes: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ListPartitionReassignmentsRequest(Struct, key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    """Time after which the request gives up, in milliseconds."""
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )
    """Topics to list; None lists all."""


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica; the first one is preferred."""
    adding_replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers that a reassignment adds."""
    removing_replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers that a reassignment removes."""


class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[OngoingPartitionReassignment, ...] = array(OngoingPartitionReassignment, "0+")
    """Partitions of the topic."""


class ListPartitionReassignmentsResponse(Struct, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    topics: tuple[OngoingTopicReassignment, ...] = array(OngoingTopicReassignment, "0+")
    """Ongoing reassignments, by topic."""
