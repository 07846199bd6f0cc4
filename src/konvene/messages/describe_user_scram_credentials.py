"""DescribeUserScramCredentials (API key 50): lists SCRAM credentials without their secrets.

Errors: CLUSTER_AUTHORIZATION_FAILED, DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string("0+")
    """Name of the user."""


class DescribeUserScramCredentialsRequest(Struct, key=50, versions="0", flexible="0+"):
    users: tuple[UserName, ...] | None = array(UserName, "0+", nullable="0+")
    """Users to describe; None or empty describes all."""


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    """SCRAM mechanism."""
    iterations: int = int32("0+")
    """Number of hash iterations."""


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    """Name of the user."""
    error_code: int = int16("0+")
    """Error of the user; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo, "0+")
    """Mechanisms and iterations of the user."""


class DescribeUserScramCredentialsResponse(Struct, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(DescribeUserScramCredentialsResult, "0+")
    """Results, in the order of the request."""
