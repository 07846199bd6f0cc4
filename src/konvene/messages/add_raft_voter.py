"""AddRaftVoter (API key 80): adds a voter to the metadata quorum.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER,
INCONSISTENT_CLUSTER_ID, DUPLICATE_VOTER, INVALID_REQUEST, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class Listener(Struct):
    name: str = string("0+")
    """Name of the listener."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""


class AddRaftVoterRequest(Struct, key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    """Id of the cluster; None if it is not known."""
    timeout_ms: int = int32("0+")
    """Time after which the request gives up, in milliseconds."""
    voter_id: int = int32("0+")
    """Id of the voter."""
    voter_directory_id: Uuid = uuid("0+")
    """Id of the voter's log directory."""
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    """Endpoints of the node, by listener."""
    ack_when_committed: bool = boolean("1+", default=True)
    """If true, the answer waits until the new voter set is committed."""


class AddRaftVoterResponse(Struct, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
    """Explanation of the error; None if there is none."""
