"""Envelope (API key 58): forwards a request from a broker to the controller.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
UNSUPPORTED_VERSION, PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, bytes_, int16


class EnvelopeRequest(Struct, key=58, versions="0", flexible="0+"):
    request_data: bytes = bytes_("0+")
    """Forwarded request, with its header."""
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    """Serialized principal of the client; None if there is none."""
    client_host_address: bytes = bytes_("0+")
    """Address of the client."""


class EnvelopeResponse(Struct, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    """Response to the forwarded request, with its header; None after an error."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
