"""InitProducerId (API key 22): returns a producer id and epoch.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST,
INVALID_TRANSACTION_TIMEOUT, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, boolean, int16, int32, int64, string


class InitProducerIdRequest(Struct, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    """Transactional id; None for an idempotent producer without transactions."""
    transaction_timeout_ms: int = int32("0+")
    """Timeout of the producer's transactions, in milliseconds."""
    producer_id: int = int64("3+", default=-1)
    """Current producer id; -1 if there is none."""
    producer_epoch: int = int16("3+", default=-1)
    """Current producer epoch; -1 if there is none."""
    enable2_pc: bool = boolean("6+")
    """True for two-phase commit, whose transactions have no timeout (KIP-939)."""
    keep_prepared_txn: bool = boolean("6+")
    """True to keep a prepared transaction instead of aborting it (KIP-939)."""


class InitProducerIdResponse(Struct, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    producer_id: int = int64("0+", default=-1)
    """Id of the producer."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    """Producer id of the prepared transaction; -1 if there is none."""
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
    """Producer epoch of the prepared transaction; -1 if there is none."""
