"""EndTxn: answered when the decision is durable. The markers follow; the next transaction waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.transaction_requests import ask
from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: EndTxnRequest, call: Call) -> Any:
    return ask(broker, request.transactional_id, request, call, _refused)


def _refused(error: Errors) -> EndTxnResponse:
    return EndTxnResponse(error_code=error)
