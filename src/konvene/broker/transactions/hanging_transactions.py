"""Transactions that a power cut left open in a partition though nobody will end them.

Records of users' topics are not forced to the disk unless `konvene.log.fsync.topics` says so, and nor are the
markers among them or the partition's part in the transaction. So a power cut may take back a marker of which
the coordinator knows that it was written, or forget that a partition took part and keep its records. Readers
of what is committed would stop there for ever.

After a start without the mark of a clean close, and before anybody is let in, every open transaction is
therefore held against its coordinator. Where that will end it, nothing is done. Otherwise it is ended here:
as was decided, if that is still known, and else by an abort, together with the rest of the transaction if it
goes on. A kill alone leaves nothing of this kind behind. Kafka leaves it to its tool
(`kafka-transactions.sh find-hanging`).
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

OF_TWO_GENERATIONS = {0: 4, 2: 5}
"""The version of EndTxn by the transaction version of its client."""


class Hanging(NamedTuple):
    """An open transaction that no coordinator is going to end."""

    partition: Partition
    ending: Ending
    goes_on: Transaction | None
    """It is under way, and does not know of this partition."""


def has_open_transactions(partitions: Partitions) -> bool:
    """Whether any transaction is open at all."""
    return any(_open(partition) for partition in partitions)


def _open(partition: Partition) -> list[tuple[int, Producer]]:
    producers = partition.log.producers.by_id.items()
    return [(of, producer) for of, producer in producers if producer.transaction_start is not None]


async def end_hanging_transactions(
    environment: Environment,
    partitions: Partitions,
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
) -> None:
    """End what hangs, if all coordinators are there to be asked."""
    found = list(hanging_transactions(partitions, transactions))
    for partition, ending, goes_on in found:
        what = "committed" if ending.committed else "aborted"
        log.warning(
            "%s: the transaction of producer %d was left open and is %s", partition, ending.producer_id, what
        )
        if goes_on is not None:
            await _abort(transactions, goes_on)
        if partition.topic == OFFSETS_TOPIC:
            coordinator = groups.at(partition.index)
            if coordinator is not None:
                await coordinator.submit(ending, RequestContext(client_id="broker"))
            continue
        try:
            partition.append_marker(ending, environment.wall_clock_ms())
        except LogError as error:
            log.error("%s: its transaction stays open: %s", partition, error)


def hanging_transactions(partitions: Partitions, transactions: TransactionCoordinators) -> Iterator[Hanging]:
    """All of them. Whoever is in several partitions is named for each."""
    known: dict[int, Transaction] = {}
    for coordinator in transactions.all():
        if coordinator.state != "active" or not isinstance(coordinator.core, TransactionShard):
            return
        known.update((t.producer_id, t) for t in coordinator.core.transactions.values())
    for partition in partitions:
        yield from _in_partition(partition, known)


def _in_partition(partition: Partition, known: dict[int, Transaction]) -> Iterator[Hanging]:
    place = partition.topic, partition.index
    for producer_id, producer in _open(partition):
        transaction, epoch = known.get(producer_id), producer.epoch
        coordinator_epoch = max(producer.coordinator_epoch, partition.leader_epoch)
        if transaction is None or transaction.producer_epoch < epoch:
            yield Hanging(partition, Ending(producer_id, epoch, coordinator_epoch, False), None)
            continue
        if place in transaction.partitions and (transaction.state is ONGOING or transaction.is_ending):
            continue
        version = transaction.client_transaction_version
        behind = transaction.producer_epoch - epoch
        is_its_end = behind == (1 if version >= 2 else 0)
        committed = transaction.state is COMPLETE_COMMIT and is_its_end
        goes_on = transaction if transaction.state is ONGOING and not behind else None
        if transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and is_its_end:
            ending = Ending(producer_id, transaction.producer_epoch, coordinator_epoch, committed, version)
        else:
            ending = Ending(producer_id, epoch, coordinator_epoch, False)
        yield Hanging(partition, ending, goes_on)


async def _abort(transactions: TransactionCoordinators, transaction: Transaction) -> None:
    """End it for its producer as well, who is told so when it wants to commit."""
    coordinator = transactions.of(transaction.transactional_id)
    assert coordinator is not None
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=False,
    )
    version = OF_TWO_GENERATIONS[2 if transaction.client_transaction_version >= 2 else 0]
    await coordinator.submit(request, RequestContext(api_version=version, client_id="broker"))
