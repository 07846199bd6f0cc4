"""What time does: transactions that take too long are aborted, ids that nobody uses are forgotten.

A transaction that was open for longer than its timeout is aborted, and its producer fenced. An id is
forgotten when nothing was heard of it for `transactional.id.expiration.ms` and no transaction is under way.
Both are looked for from time to time. What comes of it is bounded: at most `MOST_BYTES` are written at a
time, and the rest soon after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.records.coordinator import Record
from konvene.records.transactions import TransactionLogKey
from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome
from konvene.transactions.decision import written
from konvene.transactions.end_txn import fenced, markers, needs_next_id
from konvene.transactions.markers import FETCH_PRODUCER_ID, ProducerIdFetched
from konvene.transactions.state import AT_REST, NO_PRODUCER_ID, NO_TIMEOUT_MS, ONGOING, Transaction

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

TIMED_OUT, EXPIRED = ("timed-out",), ("expired",)
"""The timers of the whole shard."""

EVERY = {
    TIMED_OUT: "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    EXPIRED: "transaction.remove.expired.transaction.cleanup.interval.ms",
}

MOST_BYTES = 256 * 1024
"""Of names in the records of one batch."""

SOON_MS = 10
"""When the next batch follows, if there is more to do."""

_RECORD_BYTES = 64
"""Of a record, beside its names."""


def armed(key: tuple[str], context: Context) -> Arm:
    """The timer, when all has just been looked at."""
    return Arm(key, context.config[EVERY[key]])


def timed_out(shard: TransactionShard, context: Context) -> Outcome:
    """Abort what takes too long."""
    aborted: list[Transaction] = []
    effects: list[Effect] = []
    left = MOST_BYTES
    timer = armed(TIMED_OUT, context)
    for transaction in shard.transactions.values():
        if not _takes_too_long(transaction, context.now_ms):
            continue
        left -= _size(transaction)
        if left < 0 and aborted:
            timer = Arm(TIMED_OUT, SOON_MS)
            break
        if needs_next_id(transaction, context):
            effects.append(Effect(FETCH_PRODUCER_ID, transaction.transactional_id))
            continue
        aborted.append(fenced(transaction, NO_PRODUCER_ID, context))
        effects.append(markers(aborted[-1]))
    return written(tuple(aborted), context, effects=tuple(effects), timers=(timer,))


def producer_id_fetched(shard: TransactionShard, news: ProducerIdFetched, context: Context) -> Outcome:
    """Abort a transaction whose producer has no epochs left, if it still takes too long."""
    transaction = shard.transactions.get(news.transactional_id)
    if transaction is None or not _takes_too_long(transaction, context.now_ms):
        return NOTHING
    next_id = news.producer_id if needs_next_id(transaction, context) else NO_PRODUCER_ID
    aborted = fenced(transaction, next_id, context)
    return written((aborted,), context, effects=(markers(aborted),))


def _takes_too_long(transaction: Transaction, now_ms: int) -> bool:
    return (
        transaction.state is ONGOING
        and transaction.timeout_ms != NO_TIMEOUT_MS
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def _size(transaction: Transaction) -> int:
    names = len(transaction.transactional_id.encode())
    return _RECORD_BYTES + names + sum(4 + len(topic) for topic, _ in transaction.partitions)


def expired(shard: TransactionShard, context: Context) -> Outcome:
    """Forget ids that nobody uses."""
    latest_ms = context.now_ms - context.config["transactional.id.expiration.ms"]
    records: list[Record] = []
    left = MOST_BYTES
    for transaction in shard.transactions.values():
        if transaction.state not in AT_REST or transaction.last_update_ms > latest_ms:
            continue
        left -= _RECORD_BYTES + len(transaction.transactional_id.encode())
        if left < 0 and records:
            return Outcome(records=tuple(records), timers=(Arm(EXPIRED, SOON_MS),))
        records.append(Record(TransactionLogKey(transactional_id=transaction.transactional_id), None))
    return Outcome(records=tuple(records), timers=(armed(EXPIRED, context),))
