"""RemoveRaftVoter (API key 81): remove a voter from the metadata quorum."""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class RemoveRaftVoterRequest(Struct, key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")


class RemoveRaftVoterResponse(Struct, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
