"""UnregisterBroker (API key 64): remove a broker from the cluster."""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class UnregisterBrokerRequest(Struct, key=64, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Struct, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
