"""RemoveRaftVoter (API key 81): removes a voter from the metadata quorum.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER,
INCONSISTENT_CLUSTER_ID, VOTER_NOT_FOUND, INVALID_REQUEST, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class RemoveRaftVoterRequest(Struct, key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    """Id of the cluster; None if it is not known."""
    voter_id: int = int32("0+")
    """Id of the voter."""
    voter_directory_id: Uuid = uuid("0+")
    """Id of the voter's log directory."""


class RemoveRaftVoterResponse(Struct, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
    """Explanation of the error; None if there is none."""
