"""ListGroups (API key 16): lists the groups that a broker coordinates, by state and type.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class ListGroupsRequest(Struct, key=16, versions="0-5", flexible="3+"):
    states_filter: tuple[str, ...] = array(string, "4+")
    """States to list; empty lists all."""
    types_filter: tuple[str, ...] = array(string, "5+")
    """Types to list; empty lists all."""


class ListedGroup(Struct):
    group_id: str = string("0+")
    """Id of the group."""
    protocol_type: str = string("0+")
    """Protocol type of the group; empty if it has none."""
    group_state: str = string("4+", ignorable=True)
    """State of the group."""
    group_type: str = string("5+", ignorable=True)
    """Type of the group: classic, consumer, share or streams."""


class ListGroupsResponse(Struct, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    groups: tuple[ListedGroup, ...] = array(ListedGroup, "0+")
    """Groups that match."""
