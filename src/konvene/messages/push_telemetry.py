"""PushTelemetry (API key 72): sends client metrics to the broker (KIP-714).

Errors: INVALID_REQUEST, UNKNOWN_SUBSCRIPTION_ID, TELEMETRY_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
INVALID_RECORD, THROTTLING_QUOTA_EXCEEDED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, boolean, bytes_, int8, int16, int32, uuid
from konvene.codec.uuid import Uuid


class PushTelemetryRequest(Struct, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid("0+")
    """Id of the client instance."""
    subscription_id: int = int32("0+")
    """Id of the subscription that the push belongs to."""
    terminating: bool = boolean("0+")
    """True if the client terminates."""
    compression_type: int = int8("0+")
    """Compression codec of the metrics."""
    metrics: bytes = bytes_("0+")
    """Metrics in the OpenTelemetry format."""


class PushTelemetryResponse(Struct, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
