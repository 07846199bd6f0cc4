"""JoinGroup (API key 11): joins the next generation of a classic group.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED,
FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    """Name of the protocol, such as that of an assignor."""
    metadata: bytes = bytes_("0+")
    """Metadata of the member for the protocol."""


class JoinGroupRequest(Struct, key=11, versions="0-9", flexible="6+"):
    group_id: str = string("0+")
    """Id of the group."""
    session_timeout_ms: int = int32("0+")
    """Time without a heartbeat after which the member is removed, in milliseconds."""
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    """Time that the member has to join a rebalance, in milliseconds; -1 for the session timeout."""
    member_id: str = string("0+")
    """Id of the member; empty if it has none yet."""
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    protocol_type: str = string("0+")
    """Protocol type of the group, such as `consumer`."""
    protocols: tuple[JoinGroupRequestProtocol, ...] = array(JoinGroupRequestProtocol, "0+")
    """Protocols that the member supports, preferred first."""
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    """Reason that the client gives; None if it gives none."""


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    """Id of the member; empty if it has none yet."""
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Instance id of a static member; None for a dynamic one."""
    metadata: bytes = bytes_("0+")
    """Metadata of the member for the protocol."""


class JoinGroupResponse(Struct, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    generation_id: int = int32("0+", default=-1)
    """Generation of the group."""
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    """Protocol type of the group, such as `consumer`."""
    protocol_name: str | None = string("0+", nullable="7+")
    """Name of the selected protocol."""
    leader: str = string("0+")
    """Id of the member that leads the group."""
    skip_assignment: bool = boolean("9+")
    """True if the leader must not compute an assignment."""
    member_id: str = string("0+")
    """Id that the broker assigned to the member."""
    members: tuple[JoinGroupResponseMember, ...] = array(JoinGroupResponseMember, "0+")
    """Members and their metadata; sent to the leader only."""
