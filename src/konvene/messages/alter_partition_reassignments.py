"""AlterPartitionReassignments (API key 45): moves partitions to other brokers.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)
    """Ids of the brokers to move to; None cancels the reassignment."""


class ReassignableTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition, "0+")
    """Partitions of the topic."""


class AlterPartitionReassignmentsRequest(Struct, key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    """Time after which the request gives up, in milliseconds."""
    allow_replication_factor_change: bool = boolean("1+", default=True)
    """If false, changes of the replication factor are rejected."""
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic, "0+")
    """Topics of the request, or of this part of the answer."""


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""


class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ReassignablePartitionResponse, ...] = array(ReassignablePartitionResponse, "0+")
    """Partitions of the topic."""


class AlterPartitionReassignmentsResponse(Struct, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    """If false, changes of the replication factor are rejected."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse, "0+")
    """Results, by topic or resource."""
