"""DescribeTransactions: describe the state of transactions, each by its own coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import submit_to_transaction_coordinator
from konvene.errors import Errors
from konvene.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from konvene.runtime.deferred import value_of

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    transactions: TransactionCoordinators, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    states: list[TransactionState] = []
    for transactional_id in request.transactional_ids:

        def error_response(
            error: Errors, transactional_id: str = transactional_id
        ) -> DescribeTransactionsResponse:
            state = TransactionState(transactional_id=transactional_id, error_code=error)
            return DescribeTransactionsResponse(transaction_states=(state,))

        response = submit_to_transaction_coordinator(
            transactions,
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            context,
            error_response,
        )
        states += (await value_of(response)).transaction_states
    return DescribeTransactionsResponse(transaction_states=tuple(states))
