"""DescribeProducers (API key 61): lists the active producers of partitions.

Errors: TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class TopicRequest(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partition_indexes: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class DescribeProducersRequest(Struct, key=61, versions="0", flexible="0+"):
    topics: tuple[TopicRequest, ...] = array(TopicRequest, "0+")
    """Topics whose producers are listed."""


class ProducerState(Struct):
    producer_id: int = int64("0+")
    """Id of the producer."""
    producer_epoch: int = int32("0+")
    """Epoch of the producer."""
    last_sequence: int = int32("0+", default=-1)
    """Last sequence number of the producer; -1 if there is none."""
    last_timestamp: int = int64("0+", default=-1)
    """Timestamp of the producer's last batch; -1 if there is none."""
    coordinator_epoch: int = int32("0+")
    """Epoch of the coordinator that wrote the last marker; -1 if there is none."""
    current_txn_start_offset: int = int64("0+", default=-1)
    """First offset of the open transaction; -1 if there is none."""


class PartitionResponse(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    active_producers: tuple[ProducerState, ...] = array(ProducerState, "0+")
    """Producers that the partition remembers."""


class TopicResponse(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[PartitionResponse, ...] = array(PartitionResponse, "0+")
    """Partitions of the topic."""


class DescribeProducersResponse(Struct, key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[TopicResponse, ...] = array(TopicResponse, "0+")
    """Results, by topic."""
