"""UnregisterController (API key 94): removes a controller from the cluster.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
CONTROLLER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class UnregisterControllerRequest(Struct, key=94, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    """Id of the controller; -1 if there is none."""


class UnregisterControllerResponse(Struct, key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
