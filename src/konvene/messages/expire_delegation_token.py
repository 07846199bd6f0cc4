"""ExpireDelegationToken (API key 40): changes a delegation token's expiry time.

Errors: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED,
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Struct, key=40, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_("0+")
    """HMAC of the token."""
    expiry_time_period_ms: int = int64("0+")
    """Time until the token expires, in milliseconds; negative expires it at once."""


class ExpireDelegationTokenResponse(Struct, key=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    expiry_timestamp_ms: int = int64("0+")
    """Time when the token expires, in milliseconds."""
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
