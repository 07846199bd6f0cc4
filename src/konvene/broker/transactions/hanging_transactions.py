"""Ends transactions that a power failure left open in a partition, though no coordinator will end them.

Records of user topics are synced only with `konvene.log.fsync.topics`, and so are the markers among them.
A power failure may therefore undo a marker that the coordinator has recorded as written, or the coordinator's
record that a partition was added to the transaction, while the partition's records survive. Consumers with
isolation level READ_COMMITTED would stop there for ever.

After an unclean shutdown, and before the broker accepts connections, every open transaction is compared with
its coordinator. If the coordinator will end it, nothing is done. Otherwise it is ended here: by the marker
that the coordinator has decided, if it still has that decision, else by an abort. If the coordinator's
transaction is still ongoing, in other partitions, it is aborted too. A kill alone leaves no such transactions
behind. Kafka leaves them to a tool (`kafka-transactions.sh find-hanging`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.errors import LogError
from konvene.log.producers import Producer
from konvene.messages.end_txn import EndTxnRequest
from konvene.runtime.coordinator import RequestContext
from konvene.shard.contract import Ending
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, Transaction

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.storage.partitions import Partition, Partitions
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.environment import Environment

log = logging.getLogger("konvene.transactions")

END_TXN_VERSIONS = {0: 4, 2: 5}
"""Version of the EndTxn request that aborts a transaction, by the client's transaction version."""


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and that no coordinator is going to end there."""

    partition: Partition
    ending: Ending
    ongoing: Transaction | None
    """The coordinator's transaction if it is ongoing without this partition, else None."""


def has_open_transactions(partitions: Partitions) -> bool:
    """Return True if any partition has an open transaction."""
    return any(_open_producers(partition) for partition in partitions)


def _open_producers(partition: Partition) -> list[tuple[int, Producer]]:
    producers = partition.log.producers.by_id.items()
    return [
        (producer_id, producer)
        for producer_id, producer in producers
        if producer.transaction_start is not None
    ]


async def end_hanging_transactions(
    environment: Environment,
    partitions: Partitions,
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
) -> None:
    """End all hanging transactions, logging each; none unless all transaction coordinators are active."""
    hanging = list(hanging_transactions(partitions, transactions))
    for partition, ending, ongoing in hanging:
        outcome = "committed" if ending.committed else "aborted"
        log.warning(
            "%s: the transaction of producer %d was left open and is %s",
            partition,
            ending.producer_id,
            outcome,
        )
        if ongoing is not None:
            await _abort(transactions, ongoing)
        if partition.topic == OFFSETS_TOPIC:
            coordinator = groups.at(partition.index)
            if coordinator is not None:
                await coordinator.submit(ending, RequestContext(client_id="broker"))
            continue
        try:
            partition.append_marker(ending, environment.wall_clock_ms())
        except LogError as error:
            log.error("%s: cannot end its hanging transaction: %s", partition, error)


def hanging_transactions(
    partitions: Partitions, transactions: TransactionCoordinators
) -> Iterator[HangingTransaction]:
    """Yield all hanging transactions, once for each partition; none unless all coordinators are active."""
    by_producer: dict[int, Transaction] = {}
    for coordinator in transactions.all():
        if coordinator.state != "active" or not isinstance(coordinator.core, TransactionShard):
            return
        by_producer.update((t.producer_id, t) for t in coordinator.core.transactions.values())
    for partition in partitions:
        yield from _in_partition(partition, by_producer)


def _in_partition(partition: Partition, by_producer: dict[int, Transaction]) -> Iterator[HangingTransaction]:
    topic_partition = partition.topic, partition.index
    for producer_id, producer in _open_producers(partition):
        transaction, epoch = by_producer.get(producer_id), producer.epoch
        coordinator_epoch = max(producer.coordinator_epoch, partition.leader_epoch)
        if transaction is None or transaction.producer_epoch < epoch:
            yield HangingTransaction(partition, Ending(producer_id, epoch, coordinator_epoch, False), None)
            continue
        if topic_partition in transaction.partitions and (
            transaction.state is ONGOING or transaction.is_ending
        ):
            continue
        version = transaction.client_transaction_version
        epochs_behind = transaction.producer_epoch - epoch
        is_same_transaction = epochs_behind == (1 if version >= 2 else 0)
        committed = transaction.state is COMPLETE_COMMIT and is_same_transaction
        ongoing = transaction if transaction.state is ONGOING and not epochs_behind else None
        if transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and is_same_transaction:
            ending = Ending(producer_id, transaction.producer_epoch, coordinator_epoch, committed, version)
        else:
            ending = Ending(producer_id, epoch, coordinator_epoch, False)
        yield HangingTransaction(partition, ending, ongoing)


async def _abort(transactions: TransactionCoordinators, transaction: Transaction) -> None:
    """Abort an ongoing transaction; its producer receives an error when it commits."""
    coordinator = transactions.of(transaction.transactional_id)
    assert coordinator is not None
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=False,
    )
    version = END_TXN_VERSIONS[2 if transaction.client_transaction_version >= 2 else 0]
    await coordinator.submit(request, RequestContext(api_version=version, client_id="broker"))
