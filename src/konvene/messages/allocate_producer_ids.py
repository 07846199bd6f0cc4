"""AllocateProducerIds (API key 67): allocates a block of producer ids to a broker.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, int64


class AllocateProducerIdsRequest(Struct, key=67, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""


class AllocateProducerIdsResponse(Struct, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    producer_id_start: int = int64("0+")
    """First producer id of the block."""
    producer_id_len: int = int32("0+")
    """Number of producer ids in the block."""
