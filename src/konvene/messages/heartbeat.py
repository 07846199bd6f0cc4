"""Heartbeat (API key 12): a member of a classic group says that it lives."""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class HeartbeatRequest(Struct, key=12, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Struct, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
