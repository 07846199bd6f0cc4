"""RenewDelegationToken (API key 39): prolongs a delegation token.

Errors: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED,
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Struct, key=39, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_("0+")
    """HMAC of the token."""
    renew_period_ms: int = int64("0+")
    """Time by which the token is prolonged, in milliseconds; -1 for the broker's default."""


class RenewDelegationTokenResponse(Struct, key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    expiry_timestamp_ms: int = int64("0+")
    """Time when the token expires, in milliseconds."""
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
