"""Whether what is to be written to a partition belongs to a transaction that is open, and that it is told so.

The first record that a producer's transaction has in a partition is held against the coordinator (KIP-890): a
client of the older generation has added the partition before, which is verified; one of the newer is enlisted
by its write. Whoever has a transaction open in the partition's log was let in before.

A partition that was enlisted can be written to only when the coordinator's answer is there, and by then the
transaction may be over: so it is looked at once more in the moment of the append (`still`), which in one
process is all that it takes to never leave a record behind a marker.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

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
"""How brokers ask a coordinator to add partitions."""

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


Places = dict[tuple[str, int], int]
"""Topic and partition, and the error code of each."""


class Generation(Enum):
    """What a client can be told, by the version of its request."""

    DEFAULT_ERROR = 0
    GENERIC_ERROR_SUPPORTED = 1
    ADD_PARTITION = 2


class Writer(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def is_open(partition: Partition, writer: Writer) -> bool:
    """Whether the writer's transaction has records in the partition already."""
    known = partition.log.producers.by_id.get(writer.producer_id)
    return known is not None and known.transaction_start is not None and known.epoch == writer.producer_epoch


def is_fenced(partition: Partition, writer: Writer) -> bool:
    """Whether the partition has seen a later epoch of this producer."""
    known = partition.log.producers.by_id.get(writer.producer_id)
    return known is not None and writer.producer_epoch < known.epoch


def still(transactions: TransactionCoordinators, writer: Writer, place: tuple[str, int]) -> bool:
    """Whether the transaction is open with the partition in it, at this very moment."""
    shard = transactions.shard_of(writer.transactional_id)
    return shard is not None and shard.is_enlisted(*writer, *place)


def ask(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    writer: Writer,
    places: list[tuple[str, int]],
    generation: Generation,
) -> Any:
    """Have partitions verified, or added by the newer generation: `Places`, at once or something to await.

    While the last transaction of the producer is being completed, it is waited for."""
    if not transactions.ready:
        return dict.fromkeys(places, int(Errors.COORDINATOR_NOT_AVAILABLE))
    asked = _asked(writer, places, verify_only=generation is not Generation.ADD_PARTITION)
    answer = submit_for_transaction(transactions, asked, BROKER)
    if isinstance(answer, AddPartitionsToTxnResponse):
        errors = _errors(answer)
        if asked.verify_only or Errors.CONCURRENT_TRANSACTIONS not in errors.values():
            return errors
    return _until_known(loop, settings, transactions, asked, answer)


async def _until_known(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    asked: AddPartitionsToTxnTransaction,
    answer: Any,
) -> Places:
    until = loop.time() + settings.config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    while True:
        errors = _errors(await answer if isinstance(answer, Deferred) else answer)
        left_ms = int((until - loop.time()) * 1000)
        ending = Errors.CONCURRENT_TRANSACTIONS in errors.values()
        if asked.verify_only or left_ms <= 0 or not ending:
            return errors
        await transactions.completed(asked.transactional_id, left_ms)
        answer = submit_for_transaction(transactions, asked, BROKER)


def _asked(
    writer: Writer, places: list[tuple[str, int]], *, verify_only: bool
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=writer.transactional_id,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        verify_only=verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(found)) for topic, found in topics.items()
        ),
    )


def _errors(response: AddPartitionsToTxnResponse) -> Places:
    return {
        (topic.name, told.partition_index): told.partition_error_code
        for topic in response.results_by_transaction[0].topic_results
        for told in topic.results_by_partition
    }


def as_told(error: int, generation: Generation) -> tuple[Errors, str | None]:
    """The coordinator's error as a producer knows it, and what Kafka says to it."""
    found = Errors(error)
    if found is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH, None
    if found is Errors.TRANSACTION_ABORTABLE and generation is Generation.DEFAULT_ERROR:
        found = Errors.INVALID_TXN_STATE
    if found is Errors.INVALID_TXN_STATE:
        return found, NOT_ADDED
    waits = found is Errors.CONCURRENT_TRANSACTIONS and generation is not Generation.ADD_PARTITION
    if found in RETRIABLE or waits:
        return Errors.NOT_ENOUGH_REPLICAS, UNVERIFIED + found.name
    return found, None
