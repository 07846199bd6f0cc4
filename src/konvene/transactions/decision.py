"""How a decision becomes an outcome, and how a rejection becomes an error code.

Every response of a transaction coordinator has an error code; errors raised here are caught in the module of
the request. Old clients do not know PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH instead."""

from __future__ import annotations

from konvene.errors import Errors
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.state import TRANSACTION_VERSION, Transaction, TransactionSnapshot, to_record


def transaction_version(context: Context) -> int:
    """Return the finalized level of the feature `transaction.version`."""
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
    """Return the outcome that writes these transactions."""
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
    """Return whether transactions may be written without fsync, as records of the topics are by default.

    If topics are configured to fsync, additions of partitions are as well."""
    return not context.config["konvene.log.fsync.topics"]


def check_record_version(client_transaction_version: int, context: Context) -> None:
    """Raise UNSUPPORTED_VERSION for a newer client while records have version 0, which lacks its fields."""
    if client_transaction_version > 0 and transaction_version(context) < 1:
        raise TransactionError(Errors.UNSUPPORTED_VERSION)


def fresh_producer_id(context: Context) -> int:
    """Return the context's unused producer id. Raises CONCURRENT_TRANSACTIONS if there is none: clients
    retry."""
    if context.fresh_producer_id < 0:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    return context.fresh_producer_id


def client_error(error: Errors, context: Context, fenced_since: int) -> Errors:
    """Return the error for a client whose API knows PRODUCER_FENCED since version `fenced_since`."""
    if error is Errors.PRODUCER_FENCED and context.api_version < fenced_since:
        return Errors.INVALID_PRODUCER_EPOCH
    return error
