"""UpdateRaftVoter (API key 82): change the endpoints of a voter of the metadata quorum."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid


class Listener(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class UpdateRaftVoterRequest(Struct, key=82, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class CurrentLeader(Struct):
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    host: str = string("0+")
    port: int = int32("0+")


class UpdateRaftVoterResponse(Struct, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = struct(CurrentLeader, "0+", tag=0)
