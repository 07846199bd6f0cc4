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
from konvene.security.resources import Operation, transactional_id

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    transactions: TransactionCoordinators,
    request: DescribeTransactionsRequest,
    context: RequestContext,
) -> DescribeTransactionsResponse:
    states: list[TransactionState] = []
    for name in request.transactional_ids:
        if not authorization.permits(context, Operation.DESCRIBE, transactional_id(name)):
            error = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            states.append(TransactionState(transactional_id=name, error_code=error))
        else:
            states += await _describe(transactions, name, context)
    if authorization.is_enabled:
        states = [_hide_topics(authorization, context, state) for state in states]
    return DescribeTransactionsResponse(transaction_states=tuple(states))


async def _describe(
    transactions: TransactionCoordinators, name: str, context: RequestContext
) -> tuple[TransactionState, ...]:
    def error_response(error: Errors) -> DescribeTransactionsResponse:
        state = TransactionState(transactional_id=name, error_code=error)
        return DescribeTransactionsResponse(transaction_states=(state,))

    request = DescribeTransactionsRequest(transactional_ids=(name,))
    response = submit_to_transaction_coordinator(transactions, name, request, context, error_response)
    return (await value_of(response)).transaction_states


def _hide_topics(
    authorization: Authorization, context: RequestContext, state: TransactionState
) -> TransactionState:
    """Return a transaction without the topics that the client may not describe."""
    visible = authorization.permitted_topics(context, Operation.DESCRIBE, (t.topic for t in state.topics))
    return state.replace(topics=tuple(t for t in state.topics if t.topic in visible))
