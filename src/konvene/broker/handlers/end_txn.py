"""EndTxn: commit or abort a transaction.

The coordinator responds once its decision is durable. The markers are written afterwards; the producer's next
transaction waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_transaction
from konvene.broker.handlers.transaction_requests import submit_with_producer_id
from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    transactions: TransactionCoordinators,
    request: EndTxnRequest,
    context: RequestContext,
) -> Answer[EndTxnResponse]:
    if not permits_transaction(authorization, context, request.transactional_id):
        return _error_response(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return submit_with_producer_id(transactions, request.transactional_id, request, context, _error_response)


def _error_response(error: Errors) -> EndTxnResponse:
    return EndTxnResponse(error_code=error)
