"""ReadShareGroupStateSummary (API key 87): reads the start offsets of share partitions.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    """Partition number."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class ReadShareGroupStateSummaryRequest(Struct, key=87, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[ReadStateSummaryData, ...] = array(ReadStateSummaryData, "0+")
    """Topics of the request, or of this part of the answer."""


class PartitionResult(Struct):
    partition: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    state_epoch: int = int32("0+")
    """Epoch of the share partition's state, raised by each initialization."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    start_offset: int = int64("0+")
    """Start offset of the share partition; -1 if it is not initialized."""
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    """Number of records above the start offset whose delivery is complete; -1 if unknown."""


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")
    """Partitions of the topic."""


class ReadShareGroupStateSummaryResponse(Struct, key=87, versions="0-1", flexible="0+"):
    results: tuple[ReadStateSummaryResult, ...] = array(ReadStateSummaryResult, "0+")
    """Results, in the order of the request."""
