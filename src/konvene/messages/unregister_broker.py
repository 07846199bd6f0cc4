"""UnregisterBroker (API key 64): removes a broker from the cluster.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class UnregisterBrokerRequest(Struct, key=64, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""


class UnregisterBrokerResponse(Struct, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
