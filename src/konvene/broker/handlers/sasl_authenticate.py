"""SaslAuthenticate: respond with ILLEGAL_SASL_STATE, since no listener uses SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=Errors.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
