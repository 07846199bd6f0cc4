"""EndTxn: a transaction is committed or aborted; and the same on nobody's behalf.

What a client is answered that speaks EndTxn 5 (every transaction has an epoch of its own), with the epoch of
its last request, which makes it a retry, or with the present one:

                      abort, retry         abort, present   commit, retry        commit, present
    Empty             PRODUCER_FENCED      a new epoch      PRODUCER_FENCED      INVALID_TXN_STATE
    CompleteAbort     NONE                 a new epoch      INVALID_TXN_STATE    INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE    a new epoch      NONE                 INVALID_TXN_STATE

A client may be told by the error of a Produce that its partition was not added, and not know whether others
were: so it may abort what never began, and the coordinator writes an end of no partitions.

An older client has one epoch for all of its transactions: its retry of an end is a second one of the same.

The reply leaves when the Prepare record is durable; the markers follow (`markers`), and the Complete record
when they are written. When the epochs of a producer id are used up, Complete brings the next id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse
from konvene.shard.contract import NOTHING, Context, Effect, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.decision import (
    check_it_can_be_written,
    fresh_producer_id,
    told,
    transaction_version,
    written,
)
from konvene.transactions.markers import WRITE_MARKERS, Markers, MarkersWritten
from konvene.transactions.state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    sorted_partitions,
)

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

FIRST_WITH_EPOCH_BUMP = 5
FIRST_THAT_KNOWS_FENCED = 2
EPOCH_BUMP = 2
"""The transaction version with which every transaction has an epoch of its own."""


def end_txn(shard: TransactionShard, request: EndTxnRequest, context: Context) -> Outcome:
    """Decide an EndTxn."""
    transaction = shard.transactions.get(request.transactional_id)
    try:
        if not request.transactional_id:
            raise TransactionError(Errors.INVALID_REQUEST)
        if transaction is None:
            raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
        if context.api_version < FIRST_WITH_EPOCH_BUMP:
            return _by_an_old_client(transaction, request, context)
        return _by_a_new_client(transaction, request, context)
    except TransactionError as refused:
        code = told(refused.error, context, FIRST_THAT_KNOWS_FENCED)
        return Outcome((Reply(context.waiter, EndTxnResponse(error_code=code)),))


def _by_an_old_client(transaction: Transaction, request: EndTxnRequest, context: Context) -> Outcome:
    if transaction.producer_id != request.producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    reply = Reply(context.waiter, EndTxnResponse())
    if transaction.state is ONGOING:
        return _written(prepared_at_its_epoch(transaction, request.committed, context), context, reply)
    if transaction.state is (COMPLETE_COMMIT if request.committed else COMPLETE_ABORT):
        return Outcome((reply,))
    raise TransactionError(Errors.INVALID_TXN_STATE)


def _by_a_new_client(transaction: Transaction, request: EndTxnRequest, context: Context) -> Outcome:
    if transaction.is_ending:
        # First of all: the client may have another producer id when this end is complete.
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    is_rotated = _is_retry_of_a_rotation(transaction, request)
    if transaction.producer_id != request.producer_id and not is_rotated:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_rotated or transaction.producer_epoch == request.producer_epoch + 1
    may_retry = is_retry and transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    if transaction.producer_epoch != request.producer_epoch and not may_retry:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if is_retry:
        if transaction.state is not (COMPLETE_COMMIT if request.committed else COMPLETE_ABORT):
            raise TransactionError(Errors.INVALID_TXN_STATE)
        return Outcome((_ended(transaction, context),))
    if request.committed and transaction.state is not ONGOING:
        raise TransactionError(Errors.INVALID_TXN_STATE)
    fresh = fresh_producer_id(context) if transaction.is_exhausted else NO_PRODUCER_ID
    prepared = prepared_with_an_epoch(transaction, request.committed, fresh, context)
    check_it_can_be_written(EPOCH_BUMP, context)
    return _written(prepared, context, _ended(completed(prepared, context.now_ms), context))


def _is_retry_of_a_rotation(transaction: Transaction, request: EndTxnRequest) -> bool:
    return (
        transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH - 1
        and transaction.producer_epoch == 0
    )


def _ended(transaction: Transaction, context: Context) -> Reply:
    """Who the producer is from here on."""
    response = EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    return Reply(context.waiter, response)


# --- the changes, which time and the next producer bring about as well -----------------------------


def prepared_at_its_epoch(transaction: Transaction, committed: bool, context: Context) -> Transaction:
    """The end of a transaction that leaves the producer its epoch."""
    return transaction.moved(
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        last_update_ms=context.now_ms,
        client_transaction_version=0,
    )


def prepared_with_an_epoch(
    transaction: Transaction, committed: bool, next_producer_id: int, context: Context
) -> Transaction:
    """The end of a transaction, or of none, that brings the producer's next epoch."""
    epoch = transaction.producer_epoch + 1
    if epoch > LAST_EPOCH and not committed:
        epoch = LAST_EPOCH
    return transaction.moved(
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        producer_epoch=epoch,
        last_producer_epoch=transaction.producer_epoch,
        next_producer_id=next_producer_id,
        start_ms=context.now_ms if transaction.state in AT_REST else transaction.start_ms,
        last_update_ms=context.now_ms,
        client_transaction_version=EPOCH_BUMP,
    )


def needs_next_id(transaction: Transaction, context: Context) -> bool:
    """Whether to fence its producer takes a producer id."""
    return transaction_version(context) >= EPOCH_BUMP and transaction.is_exhausted


def fenced(transaction: Transaction, next_producer_id: int, context: Context) -> Transaction:
    """The abort of a transaction under way by which its producer's epoch becomes an old one."""
    if transaction_version(context) >= EPOCH_BUMP:
        return prepared_with_an_epoch(transaction, False, next_producer_id, context)
    return replace(
        prepared_at_its_epoch(transaction, False, context),
        producer_epoch=min(transaction.producer_epoch + 1, LAST_EPOCH),
        last_producer_epoch=NO_EPOCH,
    )


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """What a prepared end becomes when all of its markers are written."""
    state = COMPLETE_COMMIT if transaction.state is PREPARE_COMMIT else COMPLETE_ABORT
    rotates = transaction.next_producer_id != NO_PRODUCER_ID
    return transaction.moved(
        state,
        producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
        producer_epoch=0 if rotates else transaction.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


def markers(transaction: Transaction) -> Effect:
    """What the shell is to do for a prepared end."""
    return Effect(
        WRITE_MARKERS,
        Markers(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT, transaction.client_transaction_version,
            sorted_partitions(transaction),
        ),
    )  # fmt: skip


def _written(prepared: Transaction, context: Context, reply: Reply) -> Outcome:
    return written((prepared,), context, (reply,), (markers(prepared),))


def markers_written(shard: TransactionShard, news: MarkersWritten, context: Context) -> Outcome:
    """The end is complete. News of another end, or told twice, are nothing.

    Nobody waits for it: where it is lost, the markers are written once more."""
    transaction = shard.transactions.get(news.transactional_id)
    if (
        transaction is None
        or not transaction.is_ending
        or (transaction.producer_id, transaction.producer_epoch) != (news.producer_id, news.producer_epoch)
    ):
        return NOTHING
    return written((completed(transaction, context.now_ms),), context, when_written=True)
