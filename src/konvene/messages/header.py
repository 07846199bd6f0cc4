"""Headers of requests and responses."""

from __future__ import annotations

from konvene.codec.schema import Struct, int16, int32, string


class RequestHeader(Struct, versions="1-2", flexible="2+"):
    request_api_key: int = int16("0+")
    """Key of the API."""
    request_api_version: int = int16("0+")
    """Version of the request."""
    correlation_id: int = int32("0+")
    """Number that the response repeats."""
    client_id: str | None = string("1+", nullable="1+", flexible="none")
    """Client id; None if it is not set."""


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    correlation_id: int = int32("0+")
    """Number that the response repeats."""
