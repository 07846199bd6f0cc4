"""ShareFetch (API key 78): a share consumer acquires records (KIP-932)."""

from __future__ import annotations

from konvene.codec.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)
from konvene.codec.uuid import Uuid

Buffer = bytes | memoryview


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: tuple[int, ...] = array(int8, "0+")


class FetchPartition(Struct):
    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "0+")


class FetchTopic(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[FetchPartition, ...] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ShareFetchRequest(Struct, key=78, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=2147483647)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: tuple[FetchTopic, ...] = array(FetchTopic, "0+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    records: Buffer | None = records("0+", nullable="0")
    acquired_records: tuple[AcquiredRecords, ...] = array(AcquiredRecords, "0+")


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)


class ShareFetchResponse(Struct, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: tuple[ShareFetchableTopicResponse, ...] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "0+")
