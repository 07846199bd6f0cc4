"""What control batches and the log beside them say."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid


class AbortedTxn(Struct, versions="0"):
    producer_id: int = int64("0+")
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    last_stable_offset: int = int64("0+")


class ControlRecordTypeSchema(Struct, versions="0"):
    type: int = int16("0+")


class EndTxnMarker(Struct, versions="0"):
    coordinator_epoch: int = int32("0+")


class KRaftVersionRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    k_raft_version: int = int16("0+")


class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Struct, versions="0-1", flexible="0+"):
    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: tuple[Voter, ...] = array(Voter, "0+")
    granting_voters: tuple[Voter, ...] = array(Voter, "0+")


class SnapshotFooterRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")


class SnapshotHeaderRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class Endpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class VotersVoter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")
    endpoints: tuple[Endpoint, ...] = array(Endpoint, "0+")
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    voters: tuple[VotersVoter, ...] = array(VotersVoter, "0+")


class DefaultPrincipalData(Struct, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
