"""ListTransactions: list the transactions of all coordinators of this broker that the client may describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from konvene.security.resources import Operation, transactional_id
from konvene.shard.contract import Context
from konvene.shard.errors import Refusal
from konvene.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> ListTransactionsResponse:
    if not transactions.all():
        return _empty_response(settings, request)
    states: list[TransactionState] = []
    unknown: dict[str, None] = {}
    for coordinator in transactions.all():
        result = await coordinator.submit(request, context)
        if isinstance(result, Errors):
            return ListTransactionsResponse(error_code=result)
        assert isinstance(result, ListTransactionsResponse)
        if result.error_code:
            return result
        states += (
            state
            for state in result.transaction_states
            if authorization.permits(context, Operation.DESCRIBE, transactional_id(state.transactional_id))
        )
        unknown.update(dict.fromkeys(result.unknown_state_filters))
    return ListTransactionsResponse(unknown_state_filters=tuple(unknown), transaction_states=tuple(states))


def _empty_response(settings: BrokerSettings, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Return a response without transactions, or the error that a coordinator returns for invalid filters."""
    try:
        (reply,) = TransactionShard().handle(request, Context(0, settings.config)).replies
    except Refusal as refusal:
        return ListTransactionsResponse(error_code=refusal.error)
    assert isinstance(reply.response, ListTransactionsResponse)
    return reply.response
