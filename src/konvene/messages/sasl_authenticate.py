"""SaslAuthenticate (API key 36): carries one step of a SASL exchange.

Errors: SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16, int64, string


class SaslAuthenticateRequest(Struct, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_("0+")
    """Bytes of the SASL mechanism."""


class SaslAuthenticateResponse(Struct, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    auth_bytes: bytes = bytes_("0+")
    """Bytes of the SASL mechanism."""
    session_lifetime_ms: int = int64("1+", ignorable=True)
    """Time until the session has to be authenticated again, in milliseconds; 0 for never."""
