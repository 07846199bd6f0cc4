"""UpdateRaftVoter (API key 82): changes the endpoints of a voter of the metadata quorum.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER,
INCONSISTENT_CLUSTER_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, VOTER_NOT_FOUND, INVALID_REQUEST,
REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid


class Listener(Struct):
    name: str = string("0+")
    """Name of the listener."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    """Lowest supported version."""
    max_supported_version: int = int16("0+")
    """Highest supported version."""


class UpdateRaftVoterRequest(Struct, key=82, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    """Id of the cluster; None if it is not known."""
    current_leader_epoch: int = int32("0+")
    """Epoch of the quorum's leader; -1 if unknown."""
    voter_id: int = int32("0+")
    """Id of the voter."""
    voter_directory_id: Uuid = uuid("0+")
    """Id of the voter's log directory."""
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    """Endpoints of the node, by listener."""
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")
    """Range of KRaft versions that the voter supports."""


class CurrentLeader(Struct):
    leader_id: int = int32("0+", default=-1)
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+", default=-1)
    """Epoch of the partition's leader; -1 if it is not known."""
    host: str = string("0+")
    """Host name of the leader."""
    port: int = int32("0+")
    """Port of the leader."""


class UpdateRaftVoterResponse(Struct, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    current_leader: CurrentLeader = struct(CurrentLeader, "0+", tag=0)
    """Leader of the quorum."""
