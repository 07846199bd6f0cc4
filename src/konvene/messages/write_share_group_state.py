"""WriteShareGroupState (API key 85): changes the delivery state of share partitions.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
FENCED_STATE_EPOCH, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class StateBatch(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    delivery_state: int = int8("0+")
    """State of the records: available, acquired, acknowledged or archived."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""


class PartitionData(Struct):
    partition: int = int32("0+")
    """Partition number."""
    state_epoch: int = int32("0+")
    """Epoch of the share partition's state, raised by each initialization."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    start_offset: int = int64("0+")
    """New start offset of the share partition; -1 if unchanged."""
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    """Number of records above the start offset whose delivery is complete; -1 if unknown."""
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")
    """Delivery state of ranges of records above the start offset."""


class WriteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class WriteShareGroupStateRequest(Struct, key=85, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[WriteStateData, ...] = array(WriteStateData, "0+")
    """Topics of the request, or of this part of the answer."""


class PartitionResult(Struct):
    partition: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class WriteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")
    """Partitions of the topic."""


class WriteShareGroupStateResponse(Struct, key=85, versions="0-1", flexible="0+"):
    results: tuple[WriteStateResult, ...] = array(WriteStateResult, "0+")
    """Results, in the order of the request."""
