"""AddOffsetsToTxn: add the partition that holds a group's committed offsets to a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import submit_to_transaction_coordinator
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    transactions: TransactionCoordinators, request: AddOffsetsToTxnRequest, context: RequestContext
) -> Answer[AddOffsetsToTxnResponse]:
    return submit_to_transaction_coordinator(
        transactions, request.transactional_id, request, context, _error_response
    )


def _error_response(error: Errors) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
