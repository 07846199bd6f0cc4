"""AlterUserScramCredentials (API key 51): change SCRAM credentials."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = bytes_("0+")
    salted_password: bytes = bytes_("0+")


class AlterUserScramCredentialsRequest(Struct, key=51, versions="0", flexible="0+"):
    deletions: tuple[ScramCredentialDeletion, ...] = array(ScramCredentialDeletion, "0+")
    upsertions: tuple[ScramCredentialUpsertion, ...] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Struct, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[AlterUserScramCredentialsResult, ...] = array(AlterUserScramCredentialsResult, "0+")
