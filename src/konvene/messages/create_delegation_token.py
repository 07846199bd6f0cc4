"""CreateDelegationToken (API key 38): creates a delegation token.

Errors: INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string("0+")
    """Type of the renewer or owner."""
    principal_name: str = string("0+")
    """Name of the renewer or owner."""


class CreateDelegationTokenRequest(Struct, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+")
    """Type of the token's owner; None stands for the caller."""
    owner_principal_name: str | None = string("3+", nullable="3+")
    """Name of the token's owner; None stands for the caller."""
    renewers: tuple[CreatableRenewers, ...] = array(CreatableRenewers, "0+")
    """Principals that may renew the token."""
    max_lifetime_ms: int = int64("0+")
    """Longest lifetime of the token, in milliseconds; -1 for the broker's default."""


class CreateDelegationTokenResponse(Struct, key=38, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    principal_type: str = string("0+")
    """Type of the renewer or owner."""
    principal_name: str = string("0+")
    """Name of the renewer or owner."""
    token_requester_principal_type: str = string("3+")
    """Type of the principal that requested the token."""
    token_requester_principal_name: str = string("3+")
    """Name of the principal that requested the token."""
    issue_timestamp_ms: int = int64("0+")
    """Time when the token was issued, in milliseconds."""
    expiry_timestamp_ms: int = int64("0+")
    """Time when the token expires unless it is renewed, in milliseconds."""
    max_timestamp_ms: int = int64("0+")
    """Time when the token expires for good, in milliseconds."""
    token_id: str = string("0+")
    """Id of the token."""
    hmac: bytes = bytes_("0+")
    """HMAC of the token."""
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
