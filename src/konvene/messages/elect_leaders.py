"""ElectLeaders (API key 43): elects leaders of partitions.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION,
ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ElectLeadersRequest(Struct, key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")
    """0 elects the preferred leader, 1 allows an unclean election."""
    topic_partitions: tuple[TopicPartitions, ...] | None = array(TopicPartitions, "0+", nullable="0+")
    """Partitions to elect leaders for; None stands for all."""
    timeout_ms: int = int32("0+", default=60000)
    """Time after which the request gives up, in milliseconds."""


class PartitionResult(Struct):
    partition_id: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""


class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partition_result: tuple[PartitionResult, ...] = array(PartitionResult, "0+")
    """Results, by partition."""


class ElectLeadersResponse(Struct, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("1+")
    """Error of the whole request; 0 if there is none."""
    replica_election_results: tuple[ReplicaElectionResult, ...] = array(ReplicaElectionResult, "0+")
    """Results, by topic."""
