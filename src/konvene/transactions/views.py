"""DescribeTransactions and ListTransactions: answers about the transactions of one coordinator, for
operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from konvene.messages.describe_transactions import TransactionState as Described
from konvene.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from konvene.messages.list_transactions import TransactionState as Listed
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.pattern import InvalidPattern, Pattern
from konvene.transactions.state import BY_NAME, Transaction, by_topic

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard


def describe(shard: TransactionShard, request: DescribeTransactionsRequest, context: Context) -> Outcome:
    """Answer a DescribeTransactions with the state of each requested transactional id."""
    found = tuple(described(shard.transactions.get(name), name) for name in request.transactional_ids)
    return Outcome((Reply(context.waiter, DescribeTransactionsResponse(transaction_states=found)),))


def described(transaction: Transaction | None, transactional_id: str) -> Described:
    """Return the description of one transactional id, or the error for an unknown one."""
    if not transactional_id:
        return Described(error_code=Errors.INVALID_REQUEST)
    if transaction is None:
        return Described(error_code=Errors.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return Described(
        transactional_id=transactional_id,
        transaction_state=transaction.state.shown,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=ids) for topic, ids in by_topic(transaction.partitions)
        ),
    )


def list_transactions(shard: TransactionShard, request: ListTransactionsRequest, context: Context) -> Outcome:
    """Answer a ListTransactions with the matching transactional ids of this partition of the log."""
    unknown = tuple(dict.fromkeys(name for name in request.state_filters if name not in BY_NAME))
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    pattern = _pattern(request.transactional_id_pattern)
    found = tuple(
        Listed(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.shown,
        )
        for transaction in shard.transactions.values()
        if (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (not request.state_filters or transaction.state in states)
        and (request.duration_filter < 0 or context.now_ms - transaction.start_ms > request.duration_filter)
        and (pattern is None or pattern.matches(transaction.transactional_id))
    )
    response = ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)
    return Outcome((Reply(context.waiter, response),))


def _pattern(text: str | None) -> Pattern | None:
    """Return the compiled pattern, if any. Raises INVALID_REGULAR_EXPRESSION if it is not valid."""
    try:
        return Pattern(text) if text else None
    except InvalidPattern as error:
        why = f"Transaction ID pattern `{text}` is not a valid regular expression: {error}."
        raise TransactionError(Errors.INVALID_REGULAR_EXPRESSION, why) from error
