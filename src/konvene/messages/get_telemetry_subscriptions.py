"""GetTelemetrySubscriptions (API key 71): returns the client metrics that the broker wants (KIP-714).

Errors: INVALID_REQUEST, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class GetTelemetrySubscriptionsRequest(Struct, key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid("0+")
    """Id of the client instance; zero in a first request."""


class GetTelemetrySubscriptionsResponse(Struct, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    client_instance_id: Uuid = uuid("0+")
    """Id of the client instance; zero in a first request."""
    subscription_id: int = int32("0+")
    """Id of the client's current subscription."""
    accepted_compression_types: tuple[int, ...] = array(int8, "0+")
    """Accepted compression codecs, preferred first."""
    push_interval_ms: int = int32("0+")
    """Interval between pushes, in milliseconds."""
    telemetry_max_bytes: int = int32("0+")
    """Largest accepted push, in bytes."""
    delta_temporality: bool = boolean("0+")
    """True for values relative to the last push, false for totals."""
    requested_metrics: tuple[str, ...] = array(string, "0+")
    """Prefixes of the wanted metrics; empty wants none, one empty prefix wants all."""
