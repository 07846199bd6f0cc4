"""SaslAuthenticate (API key 36): one step of a SASL exchange."""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16, int64, string


class SaslAuthenticateRequest(Struct, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_("0+")


class SaslAuthenticateResponse(Struct, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
