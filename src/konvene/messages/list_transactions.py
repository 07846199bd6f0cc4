"""ListTransactions (API key 66): lists the transactions that a broker coordinates.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Struct, key=66, versions="0-2", flexible="0+"):
    state_filters: tuple[str, ...] = array(string, "0+")
    """States to list; empty lists all."""
    producer_id_filters: tuple[int, ...] = array(int64, "0+")
    """Producer ids to list; empty lists all."""
    duration_filter: int = int64("1+", default=-1)
    """Lists transactions older than this, in milliseconds; -1 lists all."""
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
    """Pattern of the transactional ids to list; None lists all."""


class TransactionState(Struct):
    transactional_id: str = string("0+")
    """Transactional id of the producer."""
    producer_id: int = int64("0+")
    """Id of the producer."""
    transaction_state: str = string("0+")
    """State of the transaction."""


class ListTransactionsResponse(Struct, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    unknown_state_filters: tuple[str, ...] = array(string, "0+")
    """Requested states that the broker does not know."""
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")
    """Transactions that match."""
