"""Verification that a write to a partition belongs to an open transaction (KIP-890).

The first write of a producer's transaction to a partition is checked with the transaction coordinator. A
client of the older protocol must have added the partition before, which is verified. A client of the newer
protocol does not, so its write adds the partition. Later writes of the transaction to the partition, which is
then open in its log, need no check.

When the coordinator's answer arrives, the transaction may have ended. So the transaction is checked once more
at the moment of the append (`is_still_open`). Within one process that is enough to never leave a record
behind a marker.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.handlers.add_partitions_to_txn import submit_for_transaction
from konvene.broker.storage.partitions import Partition
from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import Deferred

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.settings import BrokerSettings
    from konvene.broker.transactions.coordinators import TransactionCoordinators

BROKER = RequestContext(api_version=5, client_id="broker")
"""Context of a broker's own AddPartitionsToTxn request."""

UNVERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: "
NOT_ADDED = "Partition was not added to the transaction"

RETRIABLE = frozenset(
    (
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NETWORK_EXCEPTION,
        Errors.NOT_COORDINATOR,
    )
)


TopicPartition = tuple[str, int]

PartitionErrors = dict[TopicPartition, int]
"""Error code by topic and partition."""


class SupportedOperation(Enum):
    """The treatment of a write to a partition outside of its transaction, by the client's request version.

    ADD_PARTITION: the write adds it. GENERIC_ERROR_SUPPORTED: the client knows TRANSACTION_ABORTABLE; with
    DEFAULT_ERROR it does not. Kafka's `TransactionSupportedOperation`."""

    DEFAULT_ERROR = 0
    GENERIC_ERROR_SUPPORTED = 1
    ADD_PARTITION = 2


class TransactionalProducer(NamedTuple):
    """A transactional id and the producer that writes in its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def is_open(partition: Partition, producer: TransactionalProducer) -> bool:
    """Return True if the producer's transaction already has records in the partition."""
    state = partition.log.producers.by_id.get(producer.producer_id)
    return (
        state is not None and state.transaction_start is not None and state.epoch == producer.producer_epoch
    )


def is_fenced(partition: Partition, producer: TransactionalProducer) -> bool:
    """Return True if the partition has records of a later epoch of this producer."""
    state = partition.log.producers.by_id.get(producer.producer_id)
    return state is not None and producer.producer_epoch < state.epoch


def is_still_open(
    transactions: TransactionCoordinators, producer: TransactionalProducer, partition: TopicPartition
) -> bool:
    """Return True if the coordinator has the transaction as ongoing now, with the partition in it."""
    shard = transactions.shard_of(producer.transactional_id)
    return shard is not None and shard.is_enlisted(*producer, *partition)


def verify_or_add(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    producer: TransactionalProducer,
    partitions: list[TopicPartition],
    supported: SupportedOperation,
) -> PartitionErrors | Awaitable[PartitionErrors]:
    """Verify that partitions are in the transaction, or add them if the client supports ADD_PARTITION.

    Return the error code of each partition, or an awaitable of that. While the producer's previous
    transaction is being completed, adding is retried for `add.partitions.to.txn.retry.backoff.max.ms` at
    most."""
    if not transactions.ready:
        return dict.fromkeys(partitions, int(Errors.COORDINATOR_NOT_AVAILABLE))
    verify_only = supported is not SupportedOperation.ADD_PARTITION
    transaction = _transaction(producer, partitions, verify_only=verify_only)
    answer = submit_for_transaction(transactions, transaction, BROKER)
    if isinstance(answer, AddPartitionsToTxnResponse):
        errors = _errors(answer)
        if verify_only or Errors.CONCURRENT_TRANSACTIONS not in errors.values():
            return errors
    return _retry_while_concurrent(loop, settings, transactions, transaction, answer)


async def _retry_while_concurrent(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    transaction: AddPartitionsToTxnTransaction,
    answer: AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse],
) -> PartitionErrors:
    deadline_s = loop.time() + settings.config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    while True:
        errors = _errors(await answer if isinstance(answer, Deferred) else answer)
        left_ms = int((deadline_s - loop.time()) * 1000)
        is_concurrent = Errors.CONCURRENT_TRANSACTIONS in errors.values()
        if transaction.verify_only or left_ms <= 0 or not is_concurrent:
            return errors
        await transactions.completed(transaction.transactional_id, left_ms)
        answer = submit_for_transaction(transactions, transaction, BROKER)


def _transaction(
    producer: TransactionalProducer, partitions: list[TopicPartition], *, verify_only: bool
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes))
            for topic, indexes in topics.items()
        ),
    )


def _errors(response: AddPartitionsToTxnResponse) -> PartitionErrors:
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in response.results_by_transaction[0].topic_results
        for result in topic.results_by_partition
    }


def producer_error(error: int, supported: SupportedOperation) -> tuple[Errors, str | None]:
    """Translate a coordinator's error code to error and message of a Produce response, as Kafka does."""
    cause = Errors(error)
    if cause is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH, None
    if cause is Errors.TRANSACTION_ABORTABLE and supported is SupportedOperation.DEFAULT_ERROR:
        cause = Errors.INVALID_TXN_STATE
    if cause is Errors.INVALID_TXN_STATE:
        return cause, NOT_ADDED
    may_retry = cause is Errors.CONCURRENT_TRANSACTIONS and supported is not SupportedOperation.ADD_PARTITION
    if cause in RETRIABLE or may_retry:
        return Errors.NOT_ENOUGH_REPLICAS, UNVERIFIED + cause.name
    return cause, None
