"""Envelope (API key 58): a request forwarded from a broker to the controller."""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16


class EnvelopeRequest(Struct, key=58, versions="0", flexible="0+"):
    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Struct, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    error_code: int = int16("0+")
