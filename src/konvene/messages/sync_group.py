"""SyncGroup (API key 14): a member of a classic group hands in or asks for the leader's assignment."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = bytes_("0+")


class SyncGroupRequest(Struct, key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Struct, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_("0+")
