"""SaslHandshake (API key 17): selects the SASL mechanism of a connection.

Errors: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, string


class SaslHandshakeRequest(Struct, key=17, versions="0-1"):
    mechanism: str = string("0+")
    """SASL mechanism that the client chooses."""


class SaslHandshakeResponse(Struct, key=17, versions="0-1"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    mechanisms: tuple[str, ...] = array(string, "0+")
    """SASL mechanisms that are enabled."""
