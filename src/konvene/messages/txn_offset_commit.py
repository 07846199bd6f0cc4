"""TxnOffsetCommit (API key 28): commits offsets of a group within a transaction.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
ILLEGAL_GENERATION, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, INVALID_PRODUCER_EPOCH,
INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE,
OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
UNSUPPORTED_VERSION, PRODUCER_FENCED, NETWORK_EXCEPTION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    committed_offset: int = int64("0+")
    """Offset to commit."""
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    committed_metadata: str | None = string("0+", nullable="0+")
    """Metadata that the client stores with the offset."""


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0-5", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("6+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = array(TxnOffsetCommitRequestPartition, "0+")
    """Partitions of the topic."""


class TxnOffsetCommitRequest(Struct, key=28, versions="0-6", flexible="3+"):
    transactional_id: str = string("0+")
    """Transactional id of the producer."""
    group_id: str = string("0+")
    """Id of the group."""
    producer_id: int = int64("0+")
    """Id of the producer."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    """Generation of a classic member, or epoch of a member of the newer protocols."""
    member_id: str = string("3+")
    """Id of the member."""
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = array(TxnOffsetCommitRequestTopic, "0+")
    """Topics whose offsets are committed."""


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("6+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = array(TxnOffsetCommitResponsePartition, "0+")
    """Partitions of the topic."""


class TxnOffsetCommitResponse(Struct, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = array(TxnOffsetCommitResponseTopic, "0+")
    """Results, by topic."""
