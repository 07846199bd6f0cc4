"""DescribeUserScramCredentials (API key 50): list SCRAM credentials (never their secrets)."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Struct, key=50, versions="0", flexible="0+"):
    users: tuple[UserName, ...] | None = array(UserName, "0+", nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Struct, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(DescribeUserScramCredentialsResult, "0+")
