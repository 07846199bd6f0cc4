"""InitProducerId: assigns a producer id to a transactional id, with an epoch that fences the previous
producer.

A producer that starts sends no producer id: it gets the next epoch, and the former owner is fenced. If a
transaction is open it is aborted first; the new producer has to retry, and then gets another epoch. A
producer that recovers from an error sends its id and epoch: it gets the next epoch if it is the owner, the
current one if it is the owner and missed the response, and is fenced otherwise.

When the epochs of a producer id are exhausted, the next producer gets another id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.decision import client_error, fresh_producer_id, outcome_of
from konvene.transactions.end_txn import fencing_abort, marker_effect, needs_new_producer_id
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

FIRST_WITH_FENCED = 4


def init_producer_id(shard: TransactionShard, request: InitProducerIdRequest, context: Context) -> Outcome:
    """Answer an InitProducerId with a producer id and epoch.

    If the transactional id has an open transaction, abort it instead, and answer CONCURRENT_TRANSACTIONS, so
    that the client retries."""
    try:
        timeout_ms = _timeout_ms(request, context)
        transaction = shard.transactions.get(request.transactional_id or "")
        if transaction is None:
            transaction = _new_transaction(request, context)
        return _initialize(transaction, request, timeout_ms, context)
    except TransactionError as refused:
        return Outcome((_error_reply(refused.error, context),))


def needs_producer_id(shard: TransactionShard, request: InitProducerIdRequest) -> bool:
    """Return True if the transactional id of the request is new, or no epoch is left of its producer id."""
    if not request.transactional_id:
        return False
    transaction = shard.transactions.get(request.transactional_id)
    return transaction is None or transaction.is_exhausted


def _timeout_ms(request: InitProducerIdRequest, context: Context) -> int:
    """Return the requested timeout. Raises `TransactionError` for requests that are never valid."""
    missing = (request.producer_id == NO_PRODUCER_ID, request.producer_epoch == NO_EPOCH)
    if not request.transactional_id or missing[0] != missing[1]:
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


def _new_transaction(request: InitProducerIdRequest, context: Context) -> Transaction:
    """Return the initial state of a transactional id that has none: a fresh producer id, and no epoch yet.

    Raises CONCURRENT_TRANSACTIONS if the context has no producer id."""
    assert request.transactional_id
    return Transaction(request.transactional_id, fresh_producer_id(context))


def _initialize(
    transaction: Transaction, request: InitProducerIdRequest, timeout_ms: int, context: Context
) -> Outcome:
    expected = None if request.producer_id == NO_PRODUCER_ID else request.producer_epoch
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known_owner(transaction, request.producer_id, expected):
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        next_id = (
            fresh_producer_id(context) if needs_new_producer_id(transaction, context) else NO_PRODUCER_ID
        )
        aborted = fencing_abort(transaction, next_id, context)
        retry = _error_reply(Errors.CONCURRENT_TRANSACTIONS, context)
        return outcome_of((aborted,), context, (retry,), (marker_effect(aborted),))
    if transaction.is_exhausted and expected in (None, transaction.producer_epoch):
        producer_id, epoch = fresh_producer_id(context), 0
        last = NO_EPOCH if expected is None else transaction.producer_epoch
    else:
        producer_id = transaction.producer_id
        epoch, last = _next_epoch(transaction, expected)
    initialized = transaction.moved(
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
    return outcome_of((initialized,), context, (Reply(context.waiter, response),))


def _is_known_owner(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Return True if the producer is the current owner, or was until its epochs were exhausted."""
    return (
        transaction.producer_epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and is_exhausted(epoch))
    )


def _next_epoch(transaction: Transaction, expected: int | None) -> tuple[int, int]:
    """Return the epoch for the producer, and the epoch that a retry of this request would have (-1: none).

    `expected` is the epoch that the producer sent, if any. Raises PRODUCER_FENCED if that is outdated."""
    epoch = transaction.producer_epoch
    if transaction.is_exhausted:
        # The epochs are exhausted, and the producer has another epoch than the current one.
        raise TransactionError(Errors.UNKNOWN_SERVER_ERROR)
    if expected is None:
        return epoch + 1, NO_EPOCH
    if expected == epoch or epoch == NO_EPOCH:
        return epoch + 1, epoch
    if expected == transaction.last_producer_epoch:
        return epoch, expected
    raise TransactionError(Errors.PRODUCER_FENCED)


def _error_reply(error: Errors, context: Context) -> Reply:
    code = client_error(error, context, FIRST_WITH_FENCED)
    response = InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
    return Reply(context.waiter, response)
