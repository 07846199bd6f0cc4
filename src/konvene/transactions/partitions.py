"""AddPartitionsToTxn and AddOffsetsToTxn: where a transaction writes. The first of them begins one.

Up to version 3 a client asks, for one transaction. From 4 on brokers ask, for several at a time: to add
partitions for a client that does not ask itself (every transaction has an epoch of its own), or to hear
whether partitions were added (`verify_only`), which changes nothing. Each transaction is decided by itself.
Which kind of client it is the version tells; the form may be the newer one for both.

Nothing here asks whether a partition exists: who sends the request did.
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
from konvene.transactions.decision import as_records_are, check_it_can_be_written, told, written
from konvene.transactions.end_txn import EPOCH_BUMP
from konvene.transactions.state import AT_REST, COMPLETE, ONGOING, Partition, Transaction

if TYPE_CHECKING:
    from konvene.transactions.shard import TransactionShard

FIRST_BETWEEN_BROKERS = 4
FIRST_THAT_KNOWS_FENCED = 2

TopicResults = tuple[AddPartitionsToTxnTopicResult, ...]


def add_partitions(shard: TransactionShard, request: AddPartitionsToTxnRequest, context: Context) -> Outcome:
    """Decide an AddPartitionsToTxn, of either form."""
    if context.api_version < FIRST_BETWEEN_BROKERS and not request.transactions:
        changed, results = _decided(shard, _only_one(request), context, {})
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        reply = Reply(context.waiter, response)
        return written(changed, context, (reply,), when_written=_may_leave(shard, changed, context))
    latest: dict[str, Transaction] = {}
    all_results = []
    for asked in request.transactions:
        changed, results = _decided(shard, asked, context, latest)
        latest |= {transaction.transactional_id: transaction for transaction in changed}
        all_results.append(
            AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=results)
        )
    response = AddPartitionsToTxnResponse(results_by_transaction=tuple(all_results))
    reply = Reply(context.waiter, response)
    begun = tuple(latest.values())
    return written(begun, context, (reply,), when_written=_may_leave(shard, begun, context))


def _may_leave(shard: TransactionShard, changed: tuple[Transaction, ...], context: Context) -> bool:
    """Whether it is enough that these records are written.

    An old client has one epoch for all of its transactions. Where the end of the last one is not known to be
    complete any more, its marker is written again, and would be the end of the next one as well. So the first
    step of the next one waits until the disk has the end of the last."""
    if not as_records_are(context):
        return False
    old = (t.transactional_id for t in changed if t.client_transaction_version < EPOCH_BUMP)
    before = map(shard.transactions.get, old)
    return not any(known is not None and known.state in COMPLETE for known in before)


def _only_one(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _decided(
    shard: TransactionShard,
    asked: AddPartitionsToTxnTransaction,
    context: Context,
    latest: dict[str, Transaction],
) -> tuple[tuple[Transaction, ...], TopicResults]:
    """What one transaction becomes, if anything changes, and its part of the answer."""
    wanted = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    known = latest.get(asked.transactional_id) or shard.transactions.get(asked.transactional_id)
    changed: tuple[Transaction, ...] = ()
    try:
        found = _of(known, asked.transactional_id)
        if asked.verify_only:
            return (), _results(asked.topics, _verified(found, asked, wanted))
        version = EPOCH_BUMP if context.api_version >= FIRST_BETWEEN_BROKERS else 0
        changed = _added(found, asked.producer_id, asked.producer_epoch, wanted, version, context)
        error = Errors.NONE
    except TransactionError as refused:
        error = refused.error
    if not asked.verify_only:
        error = told(error, context, FIRST_THAT_KNOWS_FENCED)
    return changed, _results(asked.topics, dict.fromkeys(wanted, error))


def _of(transaction: Transaction | None, transactional_id: str) -> Transaction:
    if not transactional_id:
        raise TransactionError(Errors.INVALID_REQUEST)
    if transaction is None:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    return transaction


def _verified(
    transaction: Transaction, asked: AddPartitionsToTxnTransaction, wanted: list[Partition]
) -> dict[Partition, Errors]:
    """Whether partitions were added. Raises `TransactionError` where the asker has no such transaction."""
    if transaction.producer_id != asked.producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != asked.producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    if transaction.is_ending:
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    return {p: Errors.NONE if p in transaction.partitions else Errors.TRANSACTION_ABORTABLE for p in wanted}


def _added(
    transaction: Transaction,
    producer_id: int,
    producer_epoch: int,
    wanted: Iterable[Partition],
    client_transaction_version: int,
    context: Context,
) -> tuple[Transaction, ...]:
    """What the transaction becomes; nothing where it has the partitions already."""
    if transaction.is_ending:
        # First of all: the client may have another producer id when this end is complete.
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise TransactionError(Errors.PRODUCER_FENCED)
    partitions = transaction.partitions.union(wanted)
    if transaction.state is ONGOING and len(partitions) == len(transaction.partitions):
        return ()
    check_it_can_be_written(client_transaction_version, context)
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
    """Decide an AddOffsetsToTxn: the partition that has the group's offsets becomes part of it."""
    changed: tuple[Transaction, ...] = ()
    error = Errors.NONE
    try:
        found = _of(shard.transactions.get(request.transactional_id), request.transactional_id)
        wanted = [(OFFSETS_TOPIC, _offsets_partition(request.group_id, context))]
        changed = _added(found, request.producer_id, request.producer_epoch, wanted, 0, context)
    except TransactionError as refused:
        error = told(refused.error, context, FIRST_THAT_KNOWS_FENCED)
    reply = Reply(context.waiter, AddOffsetsToTxnResponse(error_code=error))
    return written(changed, context, (reply,), when_written=_may_leave(shard, changed, context))


def _offsets_partition(group_id: str, context: Context) -> int:
    topic = context.topics.by_name.get(OFFSETS_TOPIC)
    count: int = topic.partitions if topic is not None else context.config["offsets.topic.num.partitions"]
    return group_partition(group_id, count)
