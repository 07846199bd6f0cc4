"""Produce (API key 0): appends record batches to partitions.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUIRED_ACKS,
INVALID_TOPIC_EXCEPTION, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, NOT_ENOUGH_REPLICAS,
NOT_ENOUGH_REPLICAS_AFTER_APPEND, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT, OUT_OF_ORDER_SEQUENCE_NUMBER,
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, REQUEST_TIMED_OUT,
KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, records, string, struct, uuid
from konvene.codec.uuid import Uuid

Buffer = bytes | memoryview


class PartitionProduceData(Struct):
    index: int = int32("0+")
    """Partition number."""
    records: Buffer | None = records("0+", nullable="0+")
    """Record batch to append; None is invalid."""


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("13+", ignorable=True)
    """Id of the topic."""
    partition_data: tuple[PartitionProduceData, ...] = array(PartitionProduceData, "0+")
    """Record batches, by partition."""


class ProduceRequest(Struct, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    """Transactional id; None outside of transactions."""
    acks: int = int16("0+")
    """Acknowledgements to wait for: 0 none, 1 the leader's, -1 those of all in-sync replicas."""
    timeout_ms: int = int32("0+")
    """Time after which the request gives up, in milliseconds."""
    topic_data: tuple[TopicProduceData, ...] = array(TopicProduceData, "0+")
    """Record batches, by topic."""


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    """Index of the record in its batch."""
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)
    """Explanation of the record's error; None if there is none."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("10+", default=-1)
    """Latest leader epoch; -1 if it is not known."""


class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    base_offset: int = int64("0+")
    """Offset of the first record; -1 after an error."""
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    """Append time if the topic uses it, in milliseconds; else -1."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    """First available offset of the partition; -1 if it is not known."""
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    """Records that caused the batch to be rejected."""
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    """Explanation of the error; None if there is none."""
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)
    """Leader of the partition, sent if the client's metadata is stale."""


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("13+", ignorable=True)
    """Id of the topic."""
    partition_responses: tuple[PartitionProduceResponse, ...] = array(PartitionProduceResponse, "0+")
    """Results, by partition."""


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    """Id of the broker."""
    host: str = string("10+")
    """Host name of the endpoint."""
    port: int = int32("10+")
    """Port of the endpoint."""
    rack: str | None = string("10+", nullable="10+", default=None)
    """Rack of the broker; None if it is not configured."""


class ProduceResponse(Struct, key=0, versions="3-13", flexible="9+"):
    responses: tuple[TopicProduceResponse, ...] = array(TopicProduceResponse, "0+")
    """Results, by topic."""
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "10+", tag=0)
    """Endpoints of the leaders named in the answer."""
