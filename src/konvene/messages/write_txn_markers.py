"""WriteTxnMarkers (API key 27): writes the markers that end a transaction.

Errors: CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, UNSUPPORTED_FOR_MESSAGE_FORMAT.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partition_indexes: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class WritableTxnMarker(Struct):
    producer_id: int = int64("0+")
    """Id of the producer."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    transaction_result: bool = boolean("0+")
    """True for a commit, false for an abort."""
    topics: tuple[WritableTxnMarkerTopic, ...] = array(WritableTxnMarkerTopic, "0+")
    """Partitions to write the marker to, or their results."""
    coordinator_epoch: int = int32("0+")
    """Epoch of the transaction coordinator."""
    transaction_version: int = int8("2+", ignorable=True)
    """Version of the transaction; 2 raises the producer epoch."""


class WriteTxnMarkersRequest(Struct, key=27, versions="1-2", flexible="1+"):
    markers: tuple[WritableTxnMarker, ...] = array(WritableTxnMarker, "0+")
    """Markers to write, or their results."""


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class WritableTxnMarkerTopicResult(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = array(WritableTxnMarkerPartitionResult, "0+")
    """Partitions of the topic."""


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64("0+")
    """Id of the producer."""
    topics: tuple[WritableTxnMarkerTopicResult, ...] = array(WritableTxnMarkerTopicResult, "0+")
    """Partitions to write the marker to, or their results."""


class WriteTxnMarkersResponse(Struct, key=27, versions="1-2", flexible="1+"):
    markers: tuple[WritableTxnMarkerResult, ...] = array(WritableTxnMarkerResult, "0+")
    """Markers to write, or their results."""
