"""DescribeDelegationToken (API key 41): lists delegation tokens.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int16, int32, int64, string


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string("0+")
    """Type of the principal."""
    principal_name: str = string("0+")
    """Name of the principal."""


class DescribeDelegationTokenRequest(Struct, key=41, versions="1-3", flexible="2+"):
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = array(
        DescribeDelegationTokenOwner, "0+", nullable="0+"
    )
    """Owners whose tokens are listed; None lists all."""


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string("0+")
    """Type of the principal."""
    principal_name: str = string("0+")
    """Name of the principal."""


class DescribedDelegationToken(Struct):
    principal_type: str = string("0+")
    """Type of the principal."""
    principal_name: str = string("0+")
    """Name of the principal."""
    token_requester_principal_type: str = string("3+")
    """Type of the principal that requested the token."""
    token_requester_principal_name: str = string("3+")
    """Name of the principal that requested the token."""
    issue_timestamp: int = int64("0+")
    """Time when the token was issued, in milliseconds."""
    expiry_timestamp: int = int64("0+")
    """Time when the token expires unless it is renewed, in milliseconds."""
    max_timestamp: int = int64("0+")
    """Time when the token expires for good, in milliseconds."""
    token_id: str = string("0+")
    """Id of the token."""
    hmac: bytes = bytes_("0+")
    """HMAC of the token."""
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = array(DescribedDelegationTokenRenewer, "0+")
    """Principals that may renew the token."""


class DescribeDelegationTokenResponse(Struct, key=41, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    tokens: tuple[DescribedDelegationToken, ...] = array(DescribedDelegationToken, "0+")
    """Delegation tokens."""
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
