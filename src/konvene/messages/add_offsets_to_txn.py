"""AddOffsetsToTxn (API key 25): adds a group's offsets to a transaction.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS, GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, int64, string


class AddOffsetsToTxnRequest(Struct, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+")
    """Transactional id of the producer."""
    producer_id: int = int64("0+")
    """Id of the producer."""
    producer_epoch: int = int16("0+")
    """Epoch of the producer."""
    group_id: str = string("0+")
    """Id of the group."""


class AddOffsetsToTxnResponse(Struct, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
