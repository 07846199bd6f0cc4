"""Fetch (API key 1): reads record batches, waiting until enough are available.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, FETCH_SESSION_ID_NOT_FOUND,
INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, UNSUPPORTED_COMPRESSION_TYPE, INVALID_REQUEST,
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, records, string, struct, uuid
from konvene.codec.uuid import Uuid

Buffer = bytes | memoryview


class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    """Id of the follower; -1 for a consumer."""
    replica_epoch: int = int64("15+", default=-1)
    """Epoch of the follower; -1 if unknown."""


class FetchPartition(Struct):
    partition: int = int32("0+")
    """Partition number."""
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    """Leader epoch that the client knows, to detect stale metadata; -1 if unknown."""
    fetch_offset: int = int64("0+")
    """Offset to read from."""
    last_fetched_epoch: int = int32("12+", default=-1)
    """Leader epoch of the last fetched record; -1 if there is none."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    """First available offset of the follower; -1 for a consumer."""
    partition_max_bytes: int = int32("0+")
    """Largest number of bytes for the partition."""
    replica_directory_id: Uuid = uuid("17+", tag=0, ignorable=True)
    """Id of the replica's log directory."""
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1, ignorable=True)
    """High watermark that the follower knows."""


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("13+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[FetchPartition, ...] = array(FetchPartition, "0+")
    """Partitions to read."""


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("13+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[int, ...] = array(int32, "7+")
    """Partition numbers."""


class FetchRequest(Struct, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    """Id of the cluster; None if it is not known."""
    replica_id: int = int32("0-14", default=-1)
    """Id of the follower; -1 for a consumer (up to version 14)."""
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    """State of the follower (version 15 and later)."""
    max_wait_ms: int = int32("0+")
    """Longest time to wait for records, in milliseconds."""
    min_bytes: int = int32("0+")
    """Number of bytes for which the answer waits."""
    max_bytes: int = int32("3+", default=2147483647, ignorable=True)
    """Largest number of bytes in the answer."""
    isolation_level: int = int8("4+", ignorable=True)
    """0 reads uncommitted, 1 reads committed records only."""
    session_id: int = int32("7+", ignorable=True)
    """Id of the fetch session; 0 if there is none."""
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    """Epoch of the fetch session; 0 opens one, -1 works without a session."""
    topics: tuple[FetchTopic, ...] = array(FetchTopic, "0+")
    """Topics to read."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "7+")
    """Partitions to remove from the session."""
    rack_id: str = string("11+", ignorable=True)
    """Rack of the consumer; empty if it is not configured."""


class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    """Leader epoch; -1 if there is none."""
    end_offset: int = int64("12+", default=-1)
    """End offset of the epoch or snapshot, exclusive."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("12+", default=-1)
    """Latest leader epoch; -1 if it is not known."""


class SnapshotId(Struct):
    end_offset: int = int64("0+", default=-1)
    """End offset of the epoch or snapshot, exclusive."""
    epoch: int = int32("0+", default=-1)
    """Leader epoch of the snapshot."""


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    """Id of the producer whose transaction was aborted."""
    first_offset: int = int64("4+")
    """First offset of the aborted transaction."""


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    high_watermark: int = int64("0+")
    """Offset below which records are fully replicated."""
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    """Offset below which all transactions are decided; -1 if unknown."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    """First available offset of the partition; -1 if it is not known."""
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    """Largest epoch up to which the follower's log agrees with the leader's."""
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    """Leader of the partition, sent if the client's metadata is stale."""
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    """Snapshot that the follower has to read first."""
    aborted_transactions: tuple[AbortedTransaction, ...] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    """Aborted transactions among the records; None if committed reads are not requested."""
    preferred_read_replica: int = int32("11+", default=-1)
    """Id of the replica to read from; -1 stands for the leader."""
    records: Buffer | None = records("0+", nullable="0+")
    """Record batches; None if there are none."""


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("13+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Records, by partition."""


class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    """Id of the broker."""
    host: str = string("16+")
    """Host name of the endpoint."""
    port: int = int32("16+")
    """Port of the endpoint."""
    rack: str | None = string("16+", nullable="16+", default=None)
    """Rack of the broker; None if it is not configured."""


class FetchResponse(Struct, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("7+", ignorable=True)
    """Error of the whole request; 0 if there is none."""
    session_id: int = int32("7+")
    """Id of the fetch session; 0 if there is none."""
    responses: tuple[FetchableTopicResponse, ...] = array(FetchableTopicResponse, "0+")
    """Records, by topic."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "16+", tag=0)
    """Endpoints of the leaders named in the answer."""
