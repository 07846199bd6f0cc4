"""DeleteGroups (API key 42): deletes groups without members.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class DeleteGroupsRequest(Struct, key=42, versions="0-3", flexible="2+"):
    groups_names: tuple[str, ...] = array(string, "0+")
    """Ids of the groups to delete."""


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    """Id of the group."""
    error_code: int = int16("0+")
    """Error of the group; 0 if there is none."""
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    """Explanation of the error; None if there is none."""


class DeleteGroupsResponse(Struct, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult, "0+")
    """Results, in the order of the request."""
