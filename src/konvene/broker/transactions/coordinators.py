"""The transaction coordinators of this broker: one for each partition of `__transaction_state`.

The coordinator's shard decides the end of a transaction. Then a `MarkerDelivery` writes a marker to the log
of each partition of the transaction. All logs are in this process, so markers are appended as soon as the
decision is durable. Markers in `__consumer_offsets` are appended by the group coordinator, which applies the
transaction's offsets at the same moment. When all markers are durable the shard is informed, and only then
may the producer begin its next transaction. `completed` lets a request wait for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from konvene.log.errors import LogError, Refused
from konvene.records.coordinator import decode_transaction_record, encode_transaction_record
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.coordinators import Coordinators
from konvene.runtime.deferred import Deferred
from konvene.runtime.ports import RecordSerde, one_by_one
from konvene.shard.contract import Effect, Ending
from konvene.transactions.markers import FETCH_PRODUCER_ID, MarkersToWrite, MarkersWritten, ProducerIdFetched
from konvene.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.node_services import NodeServices
    from konvene.broker.producer_ids import ProducerIds
    from konvene.broker.storage.partitions import Partition

log = logging.getLogger("konvene.transactions")

TRANSACTION_SERDE = RecordSerde(encode_transaction_record, one_by_one(decode_transaction_record))

RETRY_S = 0.05
"""Delay before a marker is written again whose partition was not ready, in seconds."""

NOT_READY = frozenset(
    (
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.UNKNOWN_SERVER_ERROR,
    )
)
"""Errors after which a marker is written again."""

TopicPartition = tuple[str, int]


class TransactionCoordinators(Coordinators):
    """Creates the transaction coordinators, and delivers the markers of the transactions that they end."""

    def __init__(self, node: NodeServices, groups: GroupCoordinators, producer_ids: ProducerIds) -> None:
        super().__init__(TRANSACTION_TOPIC, node.loop, node.topic_creator)
        self._node = node
        self._groups = groups
        self._producer_ids = producer_ids
        self._deliveries: dict[MarkerDelivery, None] = {}
        self._producer_id_tasks: dict[asyncio.Task[None], None] = {}
        self._completion_waiters: dict[str, dict[Deferred[None], None]] = {}

    def shard_of(self, transactional_id: str) -> TransactionShard | None:
        """Return the shard of a transactional id's coordinator, if it is active."""
        coordinator = self.of(transactional_id)
        if coordinator is None or coordinator.state != "active":
            return None
        assert isinstance(coordinator.core, TransactionShard)
        return coordinator.core

    def _coordinator(self, index: int) -> Coordinator | None:
        node = self._node
        partition = node.partitions.get(TRANSACTION_TOPIC, index)
        if partition is None:
            return None
        epoch = partition.leader_epoch
        return Coordinator(
            f"{TRANSACTION_TOPIC}-{index}",
            TransactionShard,
            TRANSACTION_SERDE,
            replace(
                node.coordinator_ports(partition, self.wrap_journal),
                features=lambda: node.catalogue.state.features,
                perform=lambda effect: self._perform(index, epoch, effect),
                on_stop=lambda: self._stopped(index),
            ),
        )

    # --- ending ---

    def _perform(self, index: int, coordinator_epoch: int, effect: Effect) -> None:
        coordinator = self._coordinators[index]
        assert coordinator is not None
        if effect.verb == FETCH_PRODUCER_ID:
            task = self._node.loop.create_task(self._fetch_producer_id(coordinator, effect.subject))
            self._producer_id_tasks[task] = None
            task.add_done_callback(self._producer_id_tasks.pop)
            return
        delivery = MarkerDelivery(
            self._node, self._groups, coordinator, effect.subject, coordinator_epoch, self._delivered
        )
        self._deliveries[delivery] = None
        delivery.start()

    async def _fetch_producer_id(self, coordinator: Coordinator, transactional_id: str) -> None:
        producer_id = await self.next_producer_id()
        if producer_id is not None:
            coordinator.inform(ProducerIdFetched(transactional_id, producer_id))

    async def next_producer_id(self) -> int | None:
        """Return an unused producer id, or None while the catalogue cannot be written."""
        return await self._producer_ids.next_id()

    def _stopped(self, index: int) -> None:
        """Stop the deliveries of a coordinator; after it has reloaded its log, it requests them again."""
        for delivery in [d for d in self._deliveries if d.coordinator is self._coordinators[index]]:
            delivery.stop()
            del self._deliveries[delivery]

    def _delivered(self, delivery: MarkerDelivery) -> None:
        self._deliveries.pop(delivery, None)
        markers = delivery.markers
        if self._node.meter is not None:
            self._node.meter.ended["commit" if markers.committed else "abort"] += 1
        result = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        delivery.coordinator.inform(result)
        for waiter in self._completion_waiters.pop(markers.transactional_id, ()):
            waiter.resolve(None)

    def completed(self, transactional_id: str, timeout_ms: int) -> Deferred[None]:
        """Return a deferred: resolved when the ending transaction has its markers, or after `timeout_ms`."""
        waiter: Deferred[None] = Deferred()
        self._completion_waiters.setdefault(transactional_id, {})[waiter] = None
        self._node.loop.call_later(timeout_ms / 1000, self._end_wait, transactional_id, waiter)
        return waiter

    def _end_wait(self, transactional_id: str, waiter: Deferred[None]) -> None:
        waiters = self._completion_waiters.get(transactional_id)
        if waiters is not None and waiters.pop(waiter, waiter) is None and not waiters:
            del self._completion_waiters[transactional_id]
        waiter.resolve(None)

    async def close(self) -> None:
        for task in self._producer_id_tasks:
            task.cancel()
        await super().close()


class MarkerDelivery:
    """Writes the markers of one transaction to its partitions."""

    def __init__(
        self,
        node: NodeServices,
        groups: GroupCoordinators,
        coordinator: Coordinator,
        markers: MarkersToWrite,
        coordinator_epoch: int,
        on_done: Callable[[MarkerDelivery], None],
    ) -> None:
        self.coordinator = coordinator
        self.markers = markers
        self._node = node
        self._groups = groups
        self._on_done = on_done
        self._missing = dict.fromkeys(markers.partitions)
        self._failed: list[TopicPartition] = []
        self._ending = Ending(
            markers.producer_id, markers.producer_epoch, coordinator_epoch, markers.committed,
            markers.transaction_version,
        )  # fmt: skip
        self._retry_timer: asyncio.TimerHandle | None = None
        self._syncing: dict[asyncio.Task[None], None] = {}
        self._stopped = False

    def __repr__(self) -> str:
        return f"<markers of {self.markers.transactional_id!r}: {len(self._missing)} missing>"

    def start(self) -> None:
        """Write all markers; those that cannot be written now are retried after `RETRY_S`."""
        if not self._missing:
            self._on_done(self)
        for topic_partition in self.markers.partitions:
            self._write(topic_partition)

    def _retry(self) -> None:
        self._retry_timer = None
        failed, self._failed = self._failed, []
        for topic_partition in failed:
            self._write(topic_partition)

    def stop(self) -> None:
        self._stopped = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        for syncing in self._syncing:
            syncing.cancel()

    def _write(self, topic_partition: TopicPartition) -> None:
        topic, index = topic_partition
        if topic == OFFSETS_TOPIC and self._node.catalogue.topics.has(topic, index):
            coordinator = self._groups.at(index)
            if coordinator is None:
                self._retry_later(topic_partition)
            else:
                response = coordinator.submit(self._ending, RequestContext(client_id="broker"))
                response.listen(lambda result: self._on_answer(topic_partition, result))
            return
        partition = self._node.partitions.get(topic, index)
        if partition is None:
            if topic_partition in self._node.partitions.offline:
                self._retry_later(topic_partition)
            else:
                self._written(topic_partition)  # The topic was deleted.
            return
        self._append(topic_partition, partition)

    def _append(self, topic_partition: TopicPartition, partition: Partition) -> None:
        try:
            partition.append_marker(self._ending, self._node.environment.wall_clock_ms())
        except Refused as refused:
            self._on_answer(topic_partition, Errors(refused.code))
        except LogError:
            self._retry_later(topic_partition)
        else:
            if not partition.syncs:
                self._written(topic_partition)
                return
            syncing = self._node.loop.create_task(partition.sync())
            self._syncing[syncing] = None
            syncing.add_done_callback(lambda task: self._synced(topic_partition, task))

    def _synced(self, topic_partition: TopicPartition, task: asyncio.Task[None]) -> None:
        self._syncing.pop(task, None)
        if task.cancelled():
            return
        if task.exception() is None:
            self._written(topic_partition)
        else:
            self._retry_later(topic_partition)

    def _on_answer(self, topic_partition: TopicPartition, result: object) -> None:
        if result in NOT_READY:
            self._retry_later(topic_partition)
            return
        if isinstance(result, Errors):
            # The partition has a later producer epoch, so this transaction is not open there any more.
            log.warning("%r: %s-%d rejects the marker: %s", self, *topic_partition, result.name)
        self._written(topic_partition)

    def _written(self, topic_partition: TopicPartition) -> None:
        if self._stopped or topic_partition not in self._missing:
            return
        del self._missing[topic_partition]
        if not self._missing:
            self._on_done(self)

    def _retry_later(self, topic_partition: TopicPartition) -> None:
        self._failed.append(topic_partition)
        if self._retry_timer is None and not self._stopped:
            self._retry_timer = self._node.loop.call_later(RETRY_S, self._retry)
