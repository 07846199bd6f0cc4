"""AlterUserScramCredentials (API key 51): changes SCRAM credentials.

Errors: CLUSTER_AUTHORIZATION_FAILED, UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE,
UNSUPPORTED_SASL_MECHANISM.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    """Name of the user."""
    mechanism: int = int8("0+")
    """SCRAM mechanism."""


class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    """Name of the user."""
    mechanism: int = int8("0+")
    """SCRAM mechanism."""
    iterations: int = int32("0+")
    """Number of hash iterations."""
    salt: bytes = bytes_("0+")
    """Salt of the password hash."""
    salted_password: bytes = bytes_("0+")
    """Salted password."""


class AlterUserScramCredentialsRequest(Struct, key=51, versions="0", flexible="0+"):
    deletions: tuple[ScramCredentialDeletion, ...] = array(ScramCredentialDeletion, "0+")
    """Credentials to delete."""
    upsertions: tuple[ScramCredentialUpsertion, ...] = array(ScramCredentialUpsertion, "0+")
    """Credentials to create or replace."""


class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    """Name of the user."""
    error_code: int = int16("0+")
    """Error of the user; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""


class AlterUserScramCredentialsResponse(Struct, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[AlterUserScramCredentialsResult, ...] = array(AlterUserScramCredentialsResult, "0+")
    """Results, in the order of the request."""
