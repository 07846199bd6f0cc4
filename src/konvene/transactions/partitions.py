"""AddPartitionsToTxn and AddOffsetsToTxn: add partitions to a transaction, starting it with the first one.

Clients send AddPartitionsToTxn up to version 3, for one transaction. Brokers send it from version 4 on, for
several at a time: to add partitions for clients with transaction version 2, or to verify that partitions were
added (`verify_only`), which changes nothing. Each transaction is decided on its own. The request's version
determines which kind of client it is for; both may use the newer format.

Whether a partition exists is checked by the sender, not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.codec.hashes import group_partition
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import TransactionError
from konvene.transactions.decision import (
    check_record_version,
    client_error,
    outcome_of,
    records_need_no_fsync,
)
from konvene.transactions.end_txn import EPOCH_BUMP
from konvene.transactions.state import AT_REST, COMPLETE, ONGOING, Partition, Transaction

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

FIRST_BETWEEN_BROKERS = 4
FIRST_WITH_FENCED = 2

TopicResults = tuple[AddPartitionsToTxnTopicResult, ...]


def add_partitions(shard: TransactionShard, request: AddPartitionsToTxnRequest, context: Context) -> Outcome:
    """Add or verify the partitions of an AddPartitionsToTxn request in either format."""
    if context.api_version < FIRST_BETWEEN_BROKERS and not request.transactions:
        changed, results = _decide(shard, _single_entry(request), context, {})
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        reply = Reply(context.waiter, response)
        return outcome_of(changed, context, (reply,), when_written=_needs_no_fsync(shard, changed, context))
    latest: dict[str, Transaction] = {}
    all_results = []
    for entry in request.transactions:
        changed, results = _decide(shard, entry, context, latest)
        latest |= {transaction.transactional_id: transaction for transaction in changed}
        all_results.append(
            AddPartitionsToTxnResult(transactional_id=entry.transactional_id, topic_results=results)
        )
    response = AddPartitionsToTxnResponse(results_by_transaction=tuple(all_results))
    reply = Reply(context.waiter, response)
    changed_transactions = tuple(latest.values())
    return outcome_of(
        changed_transactions,
        context,
        (reply,),
        when_written=_needs_no_fsync(shard, changed_transactions, context),
    )


def _needs_no_fsync(shard: TransactionShard, changed: tuple[Transaction, ...], context: Context) -> bool:
    """Return True if the response need not wait for the fsync of these records.

    An old client has one epoch for all of its transactions. If a crash loses the completion of the last one,
    its markers are written again, and would end the next one as well. So the first record of the next
    transaction waits for the fsync of the completion."""
    if not records_need_no_fsync(context):
        return False
    old = (t.transactional_id for t in changed if t.client_transaction_version < EPOCH_BUMP)
    before = map(shard.transactions.get, old)
    return not any(known is not None and known.state in COMPLETE for known in before)


def _single_entry(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _decide(
    shard: TransactionShard,
    entry: AddPartitionsToTxnTransaction,
    context: Context,
    latest: dict[str, Transaction],
) -> tuple[tuple[Transaction, ...], TopicResults]:
    """Return the changed transaction, if any, and the topic results of one transaction in the request.

    `latest` has the transactions that earlier entries of the request changed."""
    partitions = [(topic.name, index) for topic in entry.topics for index in topic.partitions]
    known = latest.get(entry.transactional_id) or shard.transactions.get(entry.transactional_id)
    changed: tuple[Transaction, ...] = ()
    try:
        transaction = _existing(known, entry.transactional_id)
        if entry.verify_only:
            return (), _results(entry.topics, _verify(transaction, entry, partitions))
        version = EPOCH_BUMP if context.api_version >= FIRST_BETWEEN_BROKERS else 0
        changed = _add(transaction, entry.producer_id, entry.producer_epoch, partitions, version, context)
        error = Errors.NONE
    except TransactionError as refused:
        error = refused.error
    if not entry.verify_only:
        error = client_error(error, context, FIRST_WITH_FENCED)
    return changed, _results(entry.topics, dict.fromkeys(partitions, error))


def _existing(transaction: Transaction | None, transactional_id: str) -> Transaction:
    if not transactional_id:
        raise TransactionError(Errors.INVALID_REQUEST)
    if transaction is None:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    return transaction


def _verify(
    transaction: Transaction, entry: AddPartitionsToTxnTransaction, partitions: list[Partition]
) -> dict[Partition, Errors]:
    """Return NONE for each added partition, TRANSACTION_ABORTABLE for others.

    Raises `TransactionError` if the producer has no such transaction."""
    if transaction.producer_id != entry.producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != entry.producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    return {
        p: Errors.NONE if p in transaction.partitions else Errors.TRANSACTION_ABORTABLE for p in partitions
    }


def _add(
    transaction: Transaction,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[Partition],
    client_transaction_version: int,
    context: Context,
) -> tuple[Transaction, ...]:
    """Return the transaction with the partitions added; an empty tuple if it has all of them already."""
    if transaction.is_ending:
        # Checked first: the client may have another producer id when this end is complete.
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    partitions = transaction.partitions.union(partitions)
    if transaction.state is ONGOING and len(partitions) == len(transaction.partitions):
        return ()
    check_record_version(client_transaction_version, context)
    changed = transaction.moved(
        ONGOING,
        partitions=partitions,
        start_ms=context.now_ms if transaction.state in AT_REST else transaction.start_ms,
        last_update_ms=context.now_ms,
        client_transaction_version=client_transaction_version,
    )
    return (changed,)


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: dict[Partition, Errors]) -> TopicResults:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )


def add_offsets(shard: TransactionShard, request: AddOffsetsToTxnRequest, context: Context) -> Outcome:
    """Add the partition of `__consumer_offsets` with the group's offsets to a transaction."""
    changed: tuple[Transaction, ...] = ()
    error = Errors.NONE
    try:
        transaction = _existing(shard.transactions.get(request.transactional_id), request.transactional_id)
        partitions = [(OFFSETS_TOPIC, _offsets_partition(request.group_id, context))]
        changed = _add(transaction, request.producer_id, request.producer_epoch, partitions, 0, context)
    except TransactionError as refused:
        error = client_error(refused.error, context, FIRST_WITH_FENCED)
    reply = Reply(context.waiter, AddOffsetsToTxnResponse(error_code=error))
    return outcome_of(changed, context, (reply,), when_written=_needs_no_fsync(shard, changed, context))


def _offsets_partition(group_id: str, context: Context) -> int:
    topic = context.topics.by_name.get(OFFSETS_TOPIC)
    count: int = topic.partitions if topic is not None else context.config["offsets.topic.num.partitions"]
    return group_partition(group_id, count)
