"""Whether what is to be written to a partition belongs to a transaction that is open, and that it is told so.

The first record that a producer's transaction has in a partition is held against the coordinator (KIP-890): a
client of the older generation has added the partition before, which is verified; one of the newer is enlisted
by its write. Whoever has a transaction open in the partition's log was let in before.

A partition that was enlisted can be written to only when that is durable, and by then the transaction may be
over: so it is looked at once more in the moment of the append (`still`), which in one process is all that it
takes to never leave a record behind a marker.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.coordinator import Call
from konvene.broker.handlers.add_partitions_to_txn import enlist
from konvene.broker.later import Later
from konvene.broker.partitions import Partition
from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

VERSION_OF_BROKERS = 5
"""Of AddPartitionsToTxn, as brokers ask."""

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


def still(broker: Broker, writer: Writer, place: tuple[str, int]) -> bool:
    """Whether the transaction is open with the partition in it, at this very moment."""
    shard = broker.transactions.shard_of(writer.transactional_id)
    return shard is not None and shard.is_enlisted(*writer, *place)


async def ask(
    broker: Broker, writer: Writer, places: list[tuple[str, int]], generation: Generation
) -> Places:
    """Have partitions verified, or added by the newer generation. The errors, 0 where there is none.

    While the last transaction of the producer is being completed, it is waited for."""
    if not broker.transactions.ready:
        return dict.fromkeys(places, int(Errors.COORDINATOR_NOT_AVAILABLE))
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    adds = generation is Generation.ADD_PARTITION
    asked = AddPartitionsToTxnTransaction(
        transactional_id=writer.transactional_id,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        verify_only=not adds,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(found)) for topic, found in topics.items()
        ),
    )
    until = broker.loop.time() + broker.config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    while True:
        answer = enlist(broker, asked, Call(api_version=VERSION_OF_BROKERS))
        errors = _errors(await answer if isinstance(answer, Later) else answer)
        left_ms = int((until - broker.loop.time()) * 1000)
        if not adds or left_ms <= 0 or Errors.CONCURRENT_TRANSACTIONS not in errors.values():
            return errors
        waited: Later[None] = broker.transactions.completed(writer.transactional_id, left_ms)
        await waited


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
