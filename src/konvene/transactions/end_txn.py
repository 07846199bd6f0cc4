"""EndTxn: commits or aborts a transaction, for a producer, after a timeout, or before the next producer.

With EndTxn 5 each transaction has its own epoch. A request with the epoch before the current one is a retry.
The response, by the transaction's state, the requested end, and whether the epoch is that of a retry:

                      abort, retry         abort, current   commit, retry        commit, current
    Empty             PRODUCER_FENCED      a new epoch      PRODUCER_FENCED      INVALID_TXN_STATE
    CompleteAbort     NONE                 a new epoch      INVALID_TXN_STATE    INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE    a new epoch      NONE                 INVALID_TXN_STATE

After a Produce failed because its partition was not added, a client does not know whether others were: so it
may abort a transaction that never began, and the coordinator writes an end without partitions.

An older client has one epoch for all of its transactions: its retry of an end looks like a second end.

The reply leaves when the Prepare record is durable; the markers follow (`markers`), and the Complete record
when they are written. If the epochs of a producer id are exhausted, Complete assigns the next producer id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse
from konvene.shard.contract import NOTHING, Context, Effect, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.decision import (
    check_record_version,
    client_error,
    fresh_producer_id,
    outcome_of,
    transaction_version,
)
from konvene.transactions.markers import WRITE_MARKERS, MarkersToWrite, MarkersWritten
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
FIRST_WITH_FENCED = 2
EPOCH_BUMP = 2
"""The transaction version since which each transaction has its own epoch."""


def end_txn(shard: TransactionShard, request: EndTxnRequest, context: Context) -> Outcome:
    """Prepare the commit or abort that an EndTxn requests; only answer a retry or an invalid request."""
    transaction = shard.transactions.get(request.transactional_id)
    try:
        if not request.transactional_id:
            raise TransactionError(Errors.INVALID_REQUEST)
        if transaction is None:
            raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
        if context.api_version < FIRST_WITH_EPOCH_BUMP:
            return _end_without_epoch_bump(transaction, request, context)
        return _end_with_epoch_bump(transaction, request, context)
    except TransactionError as refused:
        code = client_error(refused.error, context, FIRST_WITH_FENCED)
        return Outcome((Reply(context.waiter, EndTxnResponse(error_code=code)),))


def _end_without_epoch_bump(transaction: Transaction, request: EndTxnRequest, context: Context) -> Outcome:
    if transaction.producer_id != request.producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    reply = Reply(context.waiter, EndTxnResponse())
    if transaction.state is ONGOING:
        return _prepare_outcome(prepare_without_bump(transaction, request.committed, context), context, reply)
    if transaction.state is (COMPLETE_COMMIT if request.committed else COMPLETE_ABORT):
        return Outcome((reply,))
    raise TransactionError(Errors.INVALID_TXN_STATE)


def _end_with_epoch_bump(transaction: Transaction, request: EndTxnRequest, context: Context) -> Outcome:
    if transaction.is_ending:
        # Checked first: the client may have another producer id when this end is complete.
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    is_rotation_retry = _is_retry_after_rotation(transaction, request)
    if transaction.producer_id != request.producer_id and not is_rotation_retry:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_rotation_retry or transaction.producer_epoch == request.producer_epoch + 1
    may_retry = is_retry and transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    if transaction.producer_epoch != request.producer_epoch and not may_retry:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if is_retry:
        if transaction.state is not (COMPLETE_COMMIT if request.committed else COMPLETE_ABORT):
            raise TransactionError(Errors.INVALID_TXN_STATE)
        return Outcome((_response(transaction, context),))
    if request.committed and transaction.state is not ONGOING:
        raise TransactionError(Errors.INVALID_TXN_STATE)
    fresh = fresh_producer_id(context) if transaction.is_exhausted else NO_PRODUCER_ID
    prepared = prepare_with_bump(transaction, request.committed, fresh, context)
    check_record_version(EPOCH_BUMP, context)
    return _prepare_outcome(prepared, context, _response(complete(prepared, context.now_ms), context))


def _is_retry_after_rotation(transaction: Transaction, request: EndTxnRequest) -> bool:
    return (
        transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH - 1
        and transaction.producer_epoch == 0
    )


def _response(transaction: Transaction, context: Context) -> Reply:
    """Return the response with the producer's id and epoch for its next transaction."""
    response = EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    return Reply(context.waiter, response)


# --- transitions, also used by timeouts and InitProducerId -----------------------------------------


def prepare_without_bump(transaction: Transaction, committed: bool, context: Context) -> Transaction:
    """Return the transaction in PrepareCommit or PrepareAbort, with the producer's epoch unchanged."""
    return transaction.moved(
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        last_update_ms=context.now_ms,
        client_transaction_version=0,
    )


def prepare_with_bump(
    transaction: Transaction, committed: bool, next_producer_id: int, context: Context
) -> Transaction:
    """Return the transaction in PrepareCommit or PrepareAbort, with the producer's next epoch.

    An abort is also possible without an open transaction. `next_producer_id`: the id that the producer gets
    when the end is complete, if the epochs of its present id are exhausted; otherwise -1."""
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


def needs_new_producer_id(transaction: Transaction, context: Context) -> bool:
    """Return True if a new producer id is needed to fence the producer, since its epochs are exhausted.

    Before `transaction.version` 2 none is needed."""
    return transaction_version(context) >= EPOCH_BUMP and transaction.is_exhausted


def fencing_abort(transaction: Transaction, next_producer_id: int, context: Context) -> Transaction:
    """Return an open transaction in PrepareAbort, with a higher epoch, which fences its producer.

    `next_producer_id`: the id for the next producer if the epochs are exhausted, otherwise -1."""
    if transaction_version(context) >= EPOCH_BUMP:
        return prepare_with_bump(transaction, False, next_producer_id, context)
    return replace(
        prepare_without_bump(transaction, False, context),
        producer_epoch=min(transaction.producer_epoch + 1, LAST_EPOCH),
        last_producer_epoch=NO_EPOCH,
    )


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the transaction, moved from a Prepare state to CompleteCommit or CompleteAbort."""
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


def marker_effect(transaction: Transaction) -> Effect:
    """Return the effect that writes the markers of a prepared transaction."""
    return Effect(
        WRITE_MARKERS,
        MarkersToWrite(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT, transaction.client_transaction_version,
            sorted_partitions(transaction),
        ),
    )  # fmt: skip


def _prepare_outcome(prepared: Transaction, context: Context, reply: Reply) -> Outcome:
    return outcome_of((prepared,), context, (reply,), (marker_effect(prepared),))


def markers_written(shard: TransactionShard, event: MarkersWritten, context: Context) -> Outcome:
    """Complete a prepared transaction whose markers are written.

    An event that reports the markers of another or an earlier end is ignored. No request waits for the
    Complete record, and if it is lost, the markers are written again."""
    transaction = shard.transactions.get(event.transactional_id)
    if (
        transaction is None
        or not transaction.is_ending
        or (transaction.producer_id, transaction.producer_epoch) != (event.producer_id, event.producer_epoch)
    ):
        return NOTHING
    return outcome_of((complete(transaction, context.now_ms),), context, when_written=True)
