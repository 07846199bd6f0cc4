"""AddPartitionsToTxn (API key 24): adds partitions to a transaction.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS, UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED, TOPIC_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers to add."""


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    """Transactional id of the producer."""
    producer_id: int = int64("4+")
    """Id of the producer."""
    producer_epoch: int = int16("4+")
    """Epoch of the producer."""
    verify_only: bool = boolean("4+")
    """If true, only check whether the partitions are in the transaction."""
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "4+")
    """Topics to add to the transaction."""


class AddPartitionsToTxnRequest(Struct, key=24, versions="0-5", flexible="3+"):
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(AddPartitionsToTxnTransaction, "4+")
    """Transactions to add partitions to (version 4 and later)."""
    v3_and_below_transactional_id: str = string("0-3")
    """Transactional id of the producer (up to version 3)."""
    v3_and_below_producer_id: int = int64("0-3")
    """Id of the producer (up to version 3)."""
    v3_and_below_producer_epoch: int = int16("0-3")
    """Epoch of the producer (up to version 3)."""
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "0-3")
    """Topics to add to the transaction (up to version 3)."""


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    partition_error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string("0+")
    """Name of the topic."""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )
    """Results, by partition."""


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    """Transactional id of the producer."""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(AddPartitionsToTxnTopicResult, "4+")
    """Results, by topic."""


class AddPartitionsToTxnResponse(Struct, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("4+", ignorable=True)
    """Error of the whole request; 0 if there is none."""
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(AddPartitionsToTxnResult, "4+")
    """Results, by transaction (version 4 and later)."""
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )
    """Results, by topic (up to version 3)."""
