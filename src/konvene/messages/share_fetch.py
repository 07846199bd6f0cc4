"""ShareFetch (API key 78): acquires and reads records of share partitions (KIP-932).

Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
SHARE_SESSION_LIMIT_REACHED, INVALID_RECORD_STATE, INVALID_REQUEST, FENCED_STATE_EPOCH, KAFKA_STORAGE_ERROR,
CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

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
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    acknowledge_types: tuple[int, ...] = array(int8, "0+")
    """Acknowledgement of each record, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


class FetchPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    partition_max_bytes: int = int32("0")
    """Largest number of bytes for the partition."""
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "0+")
    """Acknowledgements of acquired records."""


class FetchTopic(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[FetchPartition, ...] = array(FetchPartition, "0+")
    """Partitions of the topic."""


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ShareFetchRequest(Struct, key=78, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the group."""
    member_id: str | None = string("0+", nullable="0+")
    """Id of the member."""
    share_session_epoch: int = int32("0+")
    """Epoch of the share session; 0 opens it, -1 closes it."""
    max_wait_ms: int = int32("0+")
    """Longest time to wait for records, in milliseconds."""
    min_bytes: int = int32("0+")
    """Number of bytes for which the answer waits."""
    max_bytes: int = int32("0+", default=2147483647)
    """Largest number of bytes in the answer."""
    max_records: int = int32("1+")
    """Largest number of records to acquire."""
    batch_size: int = int32("1+")
    """Number of records to which acquired batches are split."""
    share_acquire_mode: int = int8("2+", ignorable=True)
    """0 acquires whole batches, 1 never more than the largest number of records."""
    is_renew_ack: bool = boolean("2+")
    """True if the request has acknowledgements that renew the acquisition lock."""
    topics: tuple[FetchTopic, ...] = array(FetchTopic, "0+")
    """Topics to read from and acknowledge."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "0+")
    """Partitions to remove from the session."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Latest leader epoch; -1 if it is not known."""


class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the fetch; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    acknowledge_error_code: int = int16("0+")
    """Error of the acknowledgements; 0 if there is none."""
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the acknowledgement error; None if there is none."""
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    """Leader of the partition, sent if the client's metadata is stale."""
    records: Buffer | None = records("0+", nullable="0")
    """Record batches; None if there are none."""
    acquired_records: tuple[AcquiredRecords, ...] = array(AcquiredRecords, "0+")
    """Ranges of records that were acquired."""


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    """Id of the broker."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = int32("0+")
    """Port of the endpoint."""
    rack: str | None = string("0+", nullable="0+", default=None)
    """Rack of the broker; None if it is not configured."""


class ShareFetchResponse(Struct, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    acquisition_lock_timeout_ms: int = int32("1+")
    """Time for which acquired records stay locked, in milliseconds."""
    responses: tuple[ShareFetchableTopicResponse, ...] = array(ShareFetchableTopicResponse, "0+")
    """Records, by topic."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "0+")
    """Endpoints of the leaders named in the answer."""
