"""ListTransactions: what all coordinators of this broker have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from konvene.shard.contract import Context
from konvene.shard.errors import Refusal
from konvene.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> ListTransactionsResponse:
    if not transactions.all():
        return _of_nobody(settings, request)
    states: list[TransactionState] = []
    unknown: dict[str, None] = {}
    for coordinator in transactions.all():
        answer = await coordinator.submit(request, context)
        if isinstance(answer, Errors):
            return ListTransactionsResponse(error_code=answer)
        assert isinstance(answer, ListTransactionsResponse)
        if answer.error_code:
            return answer
        states += answer.transaction_states
        unknown.update(dict.fromkeys(answer.unknown_state_filters))
    return ListTransactionsResponse(unknown_state_filters=tuple(unknown), transaction_states=tuple(states))


def _of_nobody(settings: BrokerSettings, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Where no transaction was ever begun: what is wrong with the request is told all the same."""
    try:
        (reply,) = TransactionShard().handle(request, Context(0, settings.config)).replies
    except Refusal as refused:
        return ListTransactionsResponse(error_code=refused.error)
    assert isinstance(reply.response, ListTransactionsResponse)
    return reply.response
