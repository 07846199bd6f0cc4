"""SyncGroup (API key 14): distributes the assignment of a classic group.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL,
FENCED_INSTANCE_ID, UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    assignment: bytes = bytes_("0+")
    """Assignment of the member, in bytes of the protocol."""


class SyncGroupRequest(Struct, key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    """Id of the group."""
    generation_id: int = int32("0+")
    """Generation of the group."""
    member_id: str = string("0+")
    """Id of the member."""
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Protocol type of the group; None if it is not sent."""
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Name of the selected protocol; None if it is not sent."""
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment, "0+")
    """Assignments of all members; sent by the leader only."""


class SyncGroupResponse(Struct, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Protocol type of the group; None if it is not sent."""
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Name of the selected protocol; None if it is not sent."""
    assignment: bytes = bytes_("0+")
    """Assignment of the member, in bytes of the protocol."""
