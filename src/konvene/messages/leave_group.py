"""LeaveGroup (API key 13): removes members from a classic group.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string("3+")
    """Id of the member; in the request itself up to version 2."""
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Reason that the client gives; None if it gives none."""


class LeaveGroupRequest(Struct, key=13, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    """Id of the group."""
    member_id: str = string("0-2")
    """Id of the member; in the request itself up to version 2."""
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, "3+")
    """Members that leave (version 3 and later), or their results."""


class MemberResponse(Struct):
    member_id: str = string("3+")
    """Id of the member; in the request itself up to version 2."""
    group_instance_id: str | None = string("3+", nullable="3+")
    """Instance id of a static member; None for a dynamic one."""
    error_code: int = int16("3+")
    """Error of the member; 0 if there is none."""


class LeaveGroupResponse(Struct, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    members: tuple[MemberResponse, ...] = array(MemberResponse, "3+")
    """Members that leave (version 3 and later), or their results."""
