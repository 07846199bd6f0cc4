"""Records of transactions in `__transaction_state`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Struct, key=0, versions="0"):
    transactional_id: str = string("0")
    """Transactional id of the producer."""


class PartitionsSchema(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partition_ids: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class TransactionLogValue(Struct, key=0, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    """Id of the producer."""
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    """Producer id before the last change; -1 if there is none."""
    next_producer_id: int = int64("1+", default=-1, tag=1)
    """Producer id for the next transaction; -1 if it stays."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    """Producer epoch for the next transaction; -1 if it stays."""
    transaction_timeout_ms: int = int32("0+")
    """Timeout of the transaction, in milliseconds."""
    transaction_status: int = int8("0+")
    """State of the transaction."""
    transaction_partitions: tuple[PartitionsSchema, ...] | None = array(PartitionsSchema, "0+", nullable="0+")
    """Partitions of the transaction; None if there are none."""
    transaction_last_update_timestamp_ms: int = int64("0+")
    """Time of the last change, in milliseconds."""
    transaction_start_timestamp_ms: int = int64("0+")
    """Time when the transaction began, in milliseconds; -1 if there is none."""
    client_transaction_version: int = int16("1+", tag=2)
    """Transaction version of the client."""
