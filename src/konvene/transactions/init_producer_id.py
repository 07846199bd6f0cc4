"""InitProducerId: who has the transactional id from now on, and at which epoch.

A producer that begins says nothing of itself: it is given the next epoch, and whoever had the id before is
fenced. If there is a transaction under way it is aborted first; the new producer is told to come again, and
is given another epoch then. A producer that goes on after an error says its id and epoch: it is given the
next epoch if it is the owner, the present one if it is the owner and did not hear of it, and refused if not.

When the epochs of a producer id are used up, the next producer gets another id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.decision import fresh_producer_id, told, written
from konvene.transactions.end_txn import fenced, markers, needs_next_id
from konvene.transactions.state import (
    EMPTY,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    ONGOING,
    Transaction,
    is_exhausted,
)

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

FIRST_THAT_KNOWS_FENCED = 4


def init_producer_id(shard: TransactionShard, request: InitProducerIdRequest, context: Context) -> Outcome:
    """Decide an InitProducerId with a transactional id."""
    try:
        timeout_ms = _timeout_ms(request, context)
        transaction = shard.transactions.get(request.transactional_id or "")
        if transaction is None:
            transaction = _made(request, context)
        return _taken(transaction, request, timeout_ms, context)
    except TransactionError as refused:
        return Outcome((_refused(refused.error, context),))


def needs_producer_id(shard: TransactionShard, request: InitProducerIdRequest) -> bool:
    """Whether it may take a producer id that nobody has."""
    if not request.transactional_id:
        return False
    transaction = shard.transactions.get(request.transactional_id)
    return transaction is None or transaction.is_exhausted


def _timeout_ms(request: InitProducerIdRequest, context: Context) -> int:
    """The timeout of its transactions. Raises `TransactionError` for what no state could allow."""
    unsaid = (request.producer_id == NO_PRODUCER_ID, request.producer_epoch == NO_EPOCH)
    if not request.transactional_id or unsaid[0] != unsaid[1]:
        raise TransactionError(Errors.INVALID_REQUEST)
    if request.enable2_pc and not context.config["transaction.two.phase.commit.enable"]:
        raise TransactionError(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise TransactionError(Errors.UNSUPPORTED_VERSION)
    if request.enable2_pc:
        return NO_TIMEOUT_MS
    if not 0 < request.transaction_timeout_ms <= context.config["transaction.max.timeout.ms"]:
        raise TransactionError(Errors.INVALID_TRANSACTION_TIMEOUT)
    return request.transaction_timeout_ms


def _made(request: InitProducerIdRequest, context: Context) -> Transaction:
    """An id that nobody had: it has a producer id, and no epoch yet."""
    assert request.transactional_id
    return Transaction(request.transactional_id, fresh_producer_id(context))


def _taken(
    transaction: Transaction, request: InitProducerIdRequest, timeout_ms: int, context: Context
) -> Outcome:
    expected = None if request.producer_id == NO_PRODUCER_ID else request.producer_epoch
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_have_been(transaction, request.producer_id, expected):
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        next_id = fresh_producer_id(context) if needs_next_id(transaction, context) else NO_PRODUCER_ID
        aborted = fenced(transaction, next_id, context)
        come_again = _refused(Errors.CONCURRENT_TRANSACTIONS, context)
        return written((aborted,), context, (come_again,), (markers(aborted),))
    if transaction.is_exhausted and expected in (None, transaction.producer_epoch):
        producer_id, epoch = fresh_producer_id(context), 0
        last = NO_EPOCH if expected is None else transaction.producer_epoch
    else:
        producer_id = transaction.producer_id
        epoch, last = _next_epoch(transaction, expected)
    taken = transaction.moved(
        EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=context.now_ms,
    )
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    return written((taken,), context, (Reply(context.waiter, response),))


def _may_have_been(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether it is the owner, or was until its epochs were used up and did not hear of it."""
    return (
        transaction.producer_epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and is_exhausted(epoch))
    )


def _next_epoch(transaction: Transaction, expected: int | None) -> tuple[int, int]:
    """The epoch, and the last one. Raises `TransactionError` for a producer that another followed."""
    epoch = transaction.producer_epoch
    if transaction.is_exhausted:
        # The epochs are used up, and the producer names another one than the present.
        raise TransactionError(Errors.UNKNOWN_SERVER_ERROR)
    if expected is None:
        return epoch + 1, NO_EPOCH
    if expected == epoch or epoch == NO_EPOCH:
        return epoch + 1, epoch
    if expected == transaction.last_producer_epoch:
        return epoch, expected
    raise TransactionError(Errors.PRODUCER_FENCED)


def _refused(error: Errors, context: Context) -> Reply:
    code = told(error, context, FIRST_THAT_KNOWS_FENCED)
    response = InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
    return Reply(context.waiter, response)
