"""FindCoordinator (API key 10): finds the coordinator of a group, a transactional id or a share partition.

Errors: COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Struct, key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    """Group id, transactional id or share partition key (up to version 3 one, in the request)."""
    key_type: int = int8("1+")
    """Type of the keys: 0 group, 1 transaction, 2 share partition."""
    coordinator_keys: tuple[str, ...] = array(string, "4+")
    """Keys whose coordinators are wanted (version 4 and later)."""


class Coordinator(Struct):
    key: str = string("4+")
    """Group id, transactional id or share partition key (up to version 3 one, in the request)."""
    node_id: int = int32("4+")
    """Id of the coordinator's broker; -1 after an error."""
    host: str = string("4+")
    """Host name of the coordinator."""
    port: int = int32("4+")
    """Port of the coordinator; -1 after an error."""
    error_code: int = int16("4+")
    """Error of the key; 0 if there is none."""
    error_message: str | None = string("4+", nullable="4+", ignorable=True)
    """Explanation of the error; None if there is none."""


class FindCoordinatorResponse(Struct, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0-3")
    """Error of the request (up to version 3); 0 if there is none."""
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    """Explanation of the error; None if there is none."""
    node_id: int = int32("0-3")
    """Id of the coordinator's broker; -1 after an error."""
    host: str = string("0-3")
    """Host name of the coordinator."""
    port: int = int32("0-3")
    """Port of the coordinator; -1 after an error."""
    coordinators: tuple[Coordinator, ...] = array(Coordinator, "4+")
    """Coordinators, by key (version 4 and later)."""
