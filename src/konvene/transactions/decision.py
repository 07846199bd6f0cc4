"""How a decision is written down, and how it is refused.

Every answer of a transaction coordinator is a response with a code in it; what is raised in here becomes one
in the file that raises it. Old clients know no PRODUCER_FENCED and are told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.state import TRANSACTION_VERSION, Transaction, TransactionIs, to_record


def transaction_version(context: Context) -> int:
    """The level of the cluster's feature."""
    return context.features.get(TRANSACTION_VERSION, 0)


def written(
    transactions: tuple[Transaction, ...],
    context: Context,
    replies: tuple[Reply, ...] = (),
    effects: tuple[Effect, ...] = (),
    timers: tuple[Arm | Disarm, ...] = (),
    *,
    when_written: bool = False,
) -> Outcome:
    """The outcome that makes these transactions the state."""
    level = transaction_version(context)
    return Outcome(
        replies,
        tuple(to_record(transaction, level) for transaction in transactions),
        tuple(TransactionIs(transaction) for transaction in transactions),
        timers,
        effects,
        when_written=when_written,
    )


def as_records_are(context: Context) -> bool:
    """Whether it is enough for a partition's part in a transaction to be written: if it is for its records.

    Where those wait for the disk, so does whoever lets them in."""
    return not context.config["konvene.log.fsync.topics"]


def check_it_can_be_written(client_transaction_version: int, context: Context) -> None:
    """A log of version 0 has no room for newer clients, who look at the cluster's level before they ask."""
    if client_transaction_version > 0 and transaction_version(context) < 1:
        raise TransactionError(Errors.UNSUPPORTED_VERSION)


def fresh_producer_id(context: Context) -> int:
    """Raises `TransactionError` where nobody fetched one: the client asks again, and then somebody has."""
    if context.fresh_producer_id < 0:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    return context.fresh_producer_id


def told(error: Errors, context: Context, knows_fenced: int) -> Errors:
    """The code for a client whose API knows PRODUCER_FENCED from that version on."""
    if error is Errors.PRODUCER_FENCED and context.api_version < knows_fenced:
        return Errors.INVALID_PRODUCER_EPOCH
    return error
