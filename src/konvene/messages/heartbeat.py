"""Heartbeat (API key 12): renews a classic group member's session.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class HeartbeatRequest(Struct, key=12, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    """Id of the group."""
    generation_id: int = int32("0+")
    """Generation of the group."""
    member_id: str = string("0+")
    """Id of the member."""
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    """Instance id of a static member; None for a dynamic one."""


class HeartbeatResponse(Struct, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
