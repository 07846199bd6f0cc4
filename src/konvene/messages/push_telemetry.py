"""PushTelemetry (API key 72): client metrics (KIP-714)."""

from __future__ import annotations

from konvene.codec.schema import Struct, boolean, bytes_, int8, int16, int32, uuid
from konvene.codec.uuid import Uuid


class PushTelemetryRequest(Struct, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = bytes_("0+")


class PushTelemetryResponse(Struct, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
