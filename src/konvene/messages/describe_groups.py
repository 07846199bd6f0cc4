"""DescribeGroups (API key 15): describes classic groups and their members.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Struct, key=15, versions="0-6", flexible="5+"):
    groups: tuple[str, ...] = array(string, "0+")
    """Ids of the groups to describe."""
    include_authorized_operations: bool = boolean("3+")
    """True to include the operations that the caller may perform."""


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    """Instance id of a static member; None for a dynamic one."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    member_metadata: bytes = bytes_("0+")
    """Subscription of the member, in bytes of its protocol."""
    member_assignment: bytes = bytes_("0+")
    """Assignment of the member, in bytes of its protocol."""


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    """Error of the group; 0 if there is none."""
    error_message: str | None = string("6+", nullable="6+", default=None)
    """Explanation of the error; None if there is none."""
    group_id: str = string("0+")
    """Id of the group."""
    group_state: str = string("0+")
    """State of the group."""
    protocol_type: str = string("0+")
    """Protocol type of the group, such as `consumer`."""
    protocol_data: str = string("0+")
    """Name of the selected protocol."""
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember, "0+")
    """Members of the group."""
    authorized_operations: int = int32("3+", default=-2147483648)
    """Bit set of the operations that the caller may perform."""


class DescribeGroupsResponse(Struct, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")
    """Descriptions, in the order of the request."""
