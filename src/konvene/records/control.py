"""Control records of logs, entries of the transaction index (`.txnindex`), and KRaft's control records."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid


class AbortedTxn(Struct, versions="0"):
    producer_id: int = int64("0+")
    """Id of the producer."""
    first_offset: int = int64("0+")
    """First offset of the transaction."""
    last_offset: int = int64("0+")
    """Offset of its abort marker."""
    last_stable_offset: int = int64("0+")
    """Last stable offset when the marker was written."""


class ControlRecordTypeSchema(Struct, versions="0"):
    type: int = int16("0+")
    """Type of the control record."""


class EndTxnMarker(Struct, versions="0"):
    coordinator_epoch: int = int32("0+")
    """Epoch of the transaction coordinator."""


class KRaftVersionRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    """Version of the record."""
    k_raft_version: int = int16("0+")
    """Finalized KRaft version."""


class Voter(Struct):
    voter_id: int = int32("0+")
    """Id of the voter."""
    voter_directory_id: Uuid = uuid("1+")
    """Id of the voter's log directory."""


class LeaderChangeMessage(Struct, versions="0-1", flexible="0+"):
    version: int = int16("0+")
    """Version of the record."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    voters: tuple[Voter, ...] = array(Voter, "0+")
    """Voters of the quorum."""
    granting_voters: tuple[Voter, ...] = array(Voter, "0+")
    """Voters that elected the leader."""


class SnapshotFooterRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    """Version of the record."""


class SnapshotHeaderRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    """Version of the record."""
    last_contained_log_timestamp: int = int64("0+")
    """Timestamp of the last record in the snapshot."""


class Endpoint(Struct):
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


class VotersVoter(Struct):
    voter_id: int = int32("0+")
    """Id of the voter."""
    voter_directory_id: Uuid = uuid("0+")
    """Id of the voter's log directory."""
    endpoints: tuple[Endpoint, ...] = array(Endpoint, "0+")
    """Endpoints of the voter."""
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")
    """Range of KRaft versions that the voter supports."""


class VotersRecord(Struct, versions="0", flexible="0+"):
    version: int = int16("0+")
    """Version of the record."""
    voters: tuple[VotersVoter, ...] = array(VotersVoter, "0+")
    """Voters of the quorum."""


class DefaultPrincipalData(Struct, versions="0", flexible="0+"):
    type: str = string("0+")
    """Type of the principal."""
    name: str = string("0+")
    """Name of the principal."""
    token_authenticated: bool = boolean("0+")
    """True if the principal used a delegation token."""
