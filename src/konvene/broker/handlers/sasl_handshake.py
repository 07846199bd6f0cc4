"""SaslHandshake: respond with ILLEGAL_SASL_STATE, since no listener uses SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=Errors.ILLEGAL_SASL_STATE)
