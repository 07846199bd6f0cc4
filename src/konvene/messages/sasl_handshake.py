"""SaslHandshake (API key 17): which SASL mechanism the connection will use."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, string


class SaslHandshakeRequest(Struct, key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Struct, key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(string, "0+")
