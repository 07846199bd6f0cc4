"""ReadShareGroupState (API key 84): reads the delivery state of share partitions.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    """Partition number."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""


class ReadStateData(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class ReadShareGroupStateRequest(Struct, key=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[ReadStateData, ...] = array(ReadStateData, "0+")
    """Topics of the request, or of this part of the answer."""


class StateBatch(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    delivery_state: int = int8("0+")
    """State of the records: available, acquired, acknowledged or archived."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""


class PartitionResult(Struct):
    partition: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    state_epoch: int = int32("0+")
    """Epoch of the share partition's state, raised by each initialization."""
    start_offset: int = int64("0+")
    """Start offset of the share partition; -1 if it is not initialized."""
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")
    """Delivery state of ranges of records above the start offset."""


class ReadStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")
    """Partitions of the topic."""


class ReadShareGroupStateResponse(Struct, key=84, versions="0", flexible="0+"):
    results: tuple[ReadStateResult, ...] = array(ReadStateResult, "0+")
    """Results, in the order of the request."""
