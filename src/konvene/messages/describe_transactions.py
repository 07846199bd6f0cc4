"""DescribeTransactions (API key 65): describes transactions.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Struct, key=65, versions="0", flexible="0+"):
    transactional_ids: tuple[str, ...] = array(string, "0+")
    """Transactional ids to describe."""


class TopicData(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class TransactionState(Struct):
    error_code: int = int16("0+")
    """Error of the transaction; 0 if there is none."""
    transactional_id: str = string("0+")
    """Transactional id of the producer."""
    transaction_state: str = string("0+")
    """State of the transaction."""
    transaction_timeout_ms: int = int32("0+")
    """Timeout of the transaction, in milliseconds."""
    transaction_start_time_ms: int = int64("0+")
    """Time when the transaction began, in milliseconds; -1 if there is none."""
    producer_id: int = int64("0+")
    """Id of the producer."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Partitions of the open transaction."""


class DescribeTransactionsResponse(Struct, key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")
    """Descriptions, in the order of the request."""
