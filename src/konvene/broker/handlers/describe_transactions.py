"""DescribeTransactions: of each transactional id how its transaction stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import ask
from konvene.errors import Errors
from konvene.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from konvene.runtime.deferred import Deferred

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    states: list[TransactionState] = []
    for transactional_id in request.transactional_ids:

        def refused(error: Errors, transactional_id: str = transactional_id) -> DescribeTransactionsResponse:
            state = TransactionState(transactional_id=transactional_id, error_code=error)
            return DescribeTransactionsResponse(transaction_states=(state,))

        asked = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
        answer = ask(broker, transactional_id, asked, call, refused)
        states += (await answer if isinstance(answer, Deferred) else answer).transaction_states
    return DescribeTransactionsResponse(transaction_states=tuple(states))
