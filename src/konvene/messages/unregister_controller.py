"""UnregisterController (API key 94): remove a controller from the cluster."""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class UnregisterControllerRequest(Struct, key=94, versions="0", flexible="0+"):
    controller_id: int = int32("0+")


class UnregisterControllerResponse(Struct, key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
