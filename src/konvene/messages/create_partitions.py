"""CreatePartitions (API key 37): adds partitions to topics.

Errors: CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST,
INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION,
THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica of the new partition."""


class CreatePartitionsTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    count: int = int32("0+")
    """New number of partitions."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(
        CreatePartitionsAssignment, "0+", nullable="0+"
    )
    """Replicas of the new partitions; None lets the broker choose."""


class CreatePartitionsRequest(Struct, key=37, versions="0-3", flexible="2+"):
    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic, "0+")
    """Topics to extend."""
    timeout_ms: int = int32("0+")
    """Time after which the request gives up, in milliseconds."""
    validate_only: bool = boolean("0+")
    """If true, the request is checked and nothing is changed."""


class CreatePartitionsTopicResult(Struct):
    name: str = string("0+")
    """Name of the topic."""
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class CreatePartitionsResponse(Struct, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult, "0+")
    """Results, in the order of the request."""
