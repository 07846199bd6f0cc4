"""Builds the outcome of a decision, and maps a rejection to the error code of the response.

Every response of a transaction coordinator has an error code: each request's function catches the
`TransactionError` raised here. Old clients do not know PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH
instead.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.state import TRANSACTION_VERSION, Transaction, TransactionSnapshot, to_record


def transaction_version(context: Context) -> int:
    """Return the finalized level of the feature `transaction.version`, 0 if it has none."""
    return context.features.get(TRANSACTION_VERSION, 0)


def outcome_of(
    transactions: tuple[Transaction, ...],
    context: Context,
    replies: tuple[Reply, ...] = (),
    effects: tuple[Effect, ...] = (),
    timers: tuple[Arm | Disarm, ...] = (),
    *,
    when_written: bool = False,
) -> Outcome:
    """Return an outcome that makes `transactions` the new states of their transactional ids.

    Each is written as a record, and replayed as a soft `TransactionSnapshot` for the fields that records
    lack. With `when_written`, replies leave once the records are written, without waiting for the fsync."""
    level = transaction_version(context)
    return Outcome(
        replies,
        tuple(to_record(transaction, level) for transaction in transactions),
        tuple(TransactionSnapshot(transaction) for transaction in transactions),
        timers,
        effects,
        when_written=when_written,
    )


def records_need_no_fsync(context: Context) -> bool:
    """Return True if a response may be sent before the fsync of its records.

    By default that holds for Produce as well. With `konvene.log.fsync.topics` the result is False, since
    responses to Produce then wait for the fsync, too."""
    return not context.config["konvene.log.fsync.topics"]


def check_record_version(client_transaction_version: int, context: Context) -> None:
    """Raise UNSUPPORTED_VERSION if the log cannot store the state of a transaction of this client.

    With feature level 0, records have version 0, which lacks the fields that a client with a transaction
    version above 0 needs."""
    if client_transaction_version > 0 and transaction_version(context) < 1:
        raise TransactionError(Errors.UNSUPPORTED_VERSION)


def fresh_producer_id(context: Context) -> int:
    """Return the unused producer id that the context supplies.

    Raises CONCURRENT_TRANSACTIONS if it has none, so that the client retries."""
    if context.fresh_producer_id < 0:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    return context.fresh_producer_id


def client_error(error: Errors, context: Context, fenced_since: int) -> Errors:
    """Return `error`, but INVALID_PRODUCER_EPOCH for PRODUCER_FENCED before API version `fenced_since`."""
    if error is Errors.PRODUCER_FENCED and context.api_version < fenced_since:
        return Errors.INVALID_PRODUCER_EPOCH
    return error
