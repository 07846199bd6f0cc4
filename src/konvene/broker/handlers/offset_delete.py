"""OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import ask
from konvene.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: OffsetDeleteRequest, call: Call) -> Any:
    return ask(broker, request.group_id, request, call, lambda error: OffsetDeleteResponse(error_code=error))
