"""EndTxn: answered when the decision is durable. The markers follow; the next transaction waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import ask
from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    transactions: TransactionCoordinators, request: EndTxnRequest, context: RequestContext
) -> Answer[EndTxnResponse]:
    return ask(transactions, request.transactional_id, request, context, _refused)


def _refused(error: Errors) -> EndTxnResponse:
    return EndTxnResponse(error_code=error)
