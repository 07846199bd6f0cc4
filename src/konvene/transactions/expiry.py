"""Timeouts: aborts transactions that take too long, and deletes transactional ids that are not used.

A transaction that is open for longer than its timeout is aborted, and its producer fenced. An id is deleted
if it was not used for `transactional.id.expiration.ms` and has no open transaction. Both are checked
periodically. One check writes at most about `MAX_BATCH_BYTES`, and continues after `NEXT_BATCH_MS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.records.coordinator import Record
from konvene.records.transactions import TransactionLogKey
from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome
from konvene.transactions.decision import outcome_of
from konvene.transactions.end_txn import fencing_abort, marker_effect, needs_new_producer_id
from konvene.transactions.markers import FETCH_PRODUCER_ID, ProducerIdFetched
from konvene.transactions.state import AT_REST, NO_PRODUCER_ID, NO_TIMEOUT_MS, ONGOING, Transaction

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

TIMED_OUT, EXPIRED = ("timed-out",), ("expired",)
"""Keys of the shard's two periodic timers."""

INTERVALS = {
    TIMED_OUT: "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    EXPIRED: "transaction.remove.expired.transaction.cleanup.interval.ms",
}

MAX_BATCH_BYTES = 256 * 1024
"""Approximate maximum size of the records of one batch, mostly names."""

NEXT_BATCH_MS = 10
"""Delay of the next batch if more has expired than fits into one."""

_RECORD_BYTES = 64
"""Estimated size of a record without its names."""


def next_check(key: tuple[str], context: Context) -> Arm:
    """Return the timer of the next periodic check.

    `key`: `TIMED_OUT` (transactions that take too long) or `EXPIRED` (transactional ids to delete)."""
    return Arm(key, context.config[INTERVALS[key]])


def abort_timed_out(shard: TransactionShard, context: Context) -> Outcome:
    """Abort the transactions that exceeded their timeout, and fence their producers."""
    aborted: list[Transaction] = []
    effects: list[Effect] = []
    bytes_left = MAX_BATCH_BYTES
    timer = next_check(TIMED_OUT, context)
    for transaction in shard.transactions.values():
        if not _is_timed_out(transaction, context.now_ms):
            continue
        bytes_left -= _size(transaction)
        if bytes_left < 0 and aborted:
            timer = Arm(TIMED_OUT, NEXT_BATCH_MS)
            break
        if needs_new_producer_id(transaction, context):
            effects.append(Effect(FETCH_PRODUCER_ID, transaction.transactional_id))
            continue
        aborted.append(fencing_abort(transaction, NO_PRODUCER_ID, context))
        effects.append(marker_effect(aborted[-1]))
    return outcome_of(tuple(aborted), context, effects=tuple(effects), timers=(timer,))


def producer_id_fetched(shard: TransactionShard, event: ProducerIdFetched, context: Context) -> Outcome:
    """Abort a timed-out transaction once a new producer id was allocated for it.

    The id was requested because the epochs of the present one are exhausted. Nothing changes if the
    transaction has ended meanwhile."""
    transaction = shard.transactions.get(event.transactional_id)
    if transaction is None or not _is_timed_out(transaction, context.now_ms):
        return NOTHING
    next_id = event.producer_id if needs_new_producer_id(transaction, context) else NO_PRODUCER_ID
    aborted = fencing_abort(transaction, next_id, context)
    return outcome_of((aborted,), context, effects=(marker_effect(aborted),))


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return (
        transaction.state is ONGOING
        and transaction.timeout_ms != NO_TIMEOUT_MS
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def _size(transaction: Transaction) -> int:
    names = len(transaction.transactional_id.encode())
    return _RECORD_BYTES + names + sum(4 + len(topic) for topic, _ in transaction.partitions)


def delete_expired(shard: TransactionShard, context: Context) -> Outcome:
    """Delete the transactional ids that were not used for `transactional.id.expiration.ms`."""
    latest_ms = context.now_ms - context.config["transactional.id.expiration.ms"]
    records: list[Record] = []
    bytes_left = MAX_BATCH_BYTES
    for transaction in shard.transactions.values():
        if transaction.state not in AT_REST or transaction.last_update_ms > latest_ms:
            continue
        bytes_left -= _RECORD_BYTES + len(transaction.transactional_id.encode())
        if bytes_left < 0 and records:
            return Outcome(records=tuple(records), timers=(Arm(EXPIRED, NEXT_BATCH_MS),))
        records.append(Record(TransactionLogKey(transactional_id=transaction.transactional_id), None))
    return Outcome(records=tuple(records), timers=(next_check(EXPIRED, context),))
