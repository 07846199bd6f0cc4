"""AddOffsetsToTxn: the partition that has a group's offsets takes part in the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import ask
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    transactions: TransactionCoordinators, request: AddOffsetsToTxnRequest, context: RequestContext
) -> Answer[AddOffsetsToTxnResponse]:
    return ask(transactions, request.transactional_id, request, context, _refused)


def _refused(error: Errors) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
