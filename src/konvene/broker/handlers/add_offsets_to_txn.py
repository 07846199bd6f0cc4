"""AddOffsetsToTxn: add the partition that holds a group's committed offsets to a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, permits_transaction
from konvene.broker.handlers.transaction_requests import submit_to_transaction_coordinator
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    transactions: TransactionCoordinators,
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
) -> Answer[AddOffsetsToTxnResponse]:
    if not permits_transaction(authorization, context, request.transactional_id):
        return _error_response(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_transaction_coordinator(
        transactions, request.transactional_id, request, context, _error_response
    )


def _error_response(error: Errors) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
