"""The transaction coordinators of this broker: one for each partition of `__transaction_state`.

A transaction's end is decided in its coordinator's shard, and told to the logs of all partitions that took
part by a marker each (`Delivery`). Everybody is in this process, so markers are appended in the moment in
which the decision is durable; those of groups' offsets by the group's coordinator, which counts the offsets
in the same breath. When all are durable the shard is told, and only then may the next transaction of that
producer begin: whoever comes in between and can wait, waits for it here (`completed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
"""When a marker is tried again whose partition was not ready."""

NOT_READY = frozenset(
    (
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.UNKNOWN_SERVER_ERROR,
    )
)

TopicPartition = tuple[str, int]


class TransactionCoordinators(Coordinators):
    """Which coordinator has which transactional id, and how its transactions end."""

    def __init__(self, node: NodeServices, groups: GroupCoordinators, producer_ids: ProducerIds) -> None:
        super().__init__(TRANSACTION_TOPIC, node.loop, node.topic_creator)
        self._node = node
        self._groups = groups
        self._producer_ids = producer_ids
        self._deliveries: dict[Delivery, None] = {}
        self._fetching: dict[asyncio.Task[None], None] = {}
        self._awaited: dict[str, dict[Deferred[None], None]] = {}

    def shard_of(self, transactional_id: str) -> TransactionShard | None:
        """The state of an active coordinator."""
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
            fetching = self._node.loop.create_task(self._fetch_producer_id(coordinator, effect.subject))
            self._fetching[fetching] = None
            fetching.add_done_callback(self._fetching.pop)
            return
        delivery = Delivery(
            self._node, self._groups, coordinator, effect.subject, coordinator_epoch, self._delivered
        )
        self._deliveries[delivery] = None
        delivery.begin()

    async def _fetch_producer_id(self, coordinator: Coordinator, transactional_id: str) -> None:
        producer_id = await self.next_producer_id()
        if producer_id is not None:
            coordinator.inform(ProducerIdFetched(transactional_id, producer_id))

    async def next_producer_id(self) -> int | None:
        """Return a producer id that was never used, or None while the catalogue cannot be written."""
        return await self._producer_ids.next_id()

    def _stopped(self, index: int) -> None:
        """A coordinator that begins anew sends its markers anew: an old one must not come behind those."""
        for delivery in [d for d in self._deliveries if d.coordinator is self._coordinators[index]]:
            delivery.stop()
            del self._deliveries[delivery]

    def _delivered(self, delivery: Delivery) -> None:
        self._deliveries.pop(delivery, None)
        markers = delivery.markers
        if self._node.meter is not None:
            self._node.meter.ended["commit" if markers.committed else "abort"] += 1
        told = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        delivery.coordinator.inform(told)
        for waiting in self._awaited.pop(markers.transactional_id, ()):
            waiting.resolve(None)

    def completed(self, transactional_id: str, within_ms: int) -> Deferred[None]:
        """Resolved when the markers of a transaction that ends are written, or when time is up."""
        waiting: Deferred[None] = Deferred()
        self._awaited.setdefault(transactional_id, {})[waiting] = None
        self._node.loop.call_later(within_ms / 1000, self._wait_no_more, transactional_id, waiting)
        return waiting

    def _wait_no_more(self, transactional_id: str, waiting: Deferred[None]) -> None:
        others = self._awaited.get(transactional_id)
        if others is not None and others.pop(waiting, waiting) is None and not others:
            del self._awaited[transactional_id]
        waiting.resolve(None)

    async def close(self) -> None:
        for fetching in self._fetching:
            fetching.cancel()
        await super().close()


class Delivery:
    """The markers of one transaction on their way to the partitions that took part in it."""

    def __init__(
        self,
        node: NodeServices,
        groups: GroupCoordinators,
        coordinator: Coordinator,
        markers: MarkersToWrite,
        coordinator_epoch: int,
        done: Callable[[Delivery], None],
    ) -> None:
        self.coordinator = coordinator
        self.markers = markers
        self._node = node
        self._groups = groups
        self._done = done
        self._missing = dict.fromkeys(markers.partitions)
        self._failed: list[TopicPartition] = []
        self._ending = Ending(
            markers.producer_id, markers.producer_epoch, coordinator_epoch, markers.committed,
            markers.transaction_version,
        )  # fmt: skip
        self._again: asyncio.TimerHandle | None = None
        self._syncing: dict[asyncio.Task[None], None] = {}
        self._stopped = False

    def __repr__(self) -> str:
        return f"<markers of {self.markers.transactional_id!r}: {len(self._missing)} missing>"

    def begin(self) -> None:
        """Write all of them; what cannot be written now is tried again in a moment."""
        if not self._missing:
            self._done(self)
        for place in self.markers.partitions:
            self._write(place)

    def _write_again(self) -> None:
        self._again = None
        failed, self._failed = self._failed, []
        for place in failed:
            self._write(place)

    def stop(self) -> None:
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        for syncing in self._syncing:
            syncing.cancel()

    def _write(self, place: TopicPartition) -> None:
        topic, index = place
        if topic == OFFSETS_TOPIC and self._node.catalogue.topics.has(topic, index):
            coordinator = self._groups.at(index)
            if coordinator is None:
                self._later(place)
            else:
                answer = coordinator.submit(self._ending, RequestContext(client_id="broker"))
                answer.listen(lambda value: self._answered(place, value))
            return
        partition = self._node.partitions.get(topic, index)
        if partition is None:
            if place in self._node.partitions.offline:
                self._later(place)
            else:
                self._written(place)  # The topic is gone, and the transaction's part in it.
            return
        self._append(place, partition)

    def _append(self, place: TopicPartition, partition: Partition) -> None:
        try:
            partition.append_marker(self._ending, self._node.environment.wall_clock_ms())
        except Refused as refused:
            self._answered(place, Errors(refused.code))
        except LogError:
            self._later(place)
        else:
            if not partition.syncs:
                self._written(place)
                return
            syncing = self._node.loop.create_task(partition.sync())
            self._syncing[syncing] = None
            syncing.add_done_callback(lambda task: self._synced(place, task))

    def _synced(self, place: TopicPartition, task: asyncio.Task[None]) -> None:
        self._syncing.pop(task, None)
        if task.cancelled():
            return
        if task.exception() is None:
            self._written(place)
        else:
            self._later(place)

    def _answered(self, place: TopicPartition, answer: Any) -> None:
        if answer in NOT_READY:
            self._later(place)
            return
        if isinstance(answer, Errors):
            # The partition has seen a later epoch, so this transaction is not open there any more.
            log.warning("%r: %s-%d takes no marker: %s", self, *place, answer.name)
        self._written(place)

    def _written(self, place: TopicPartition) -> None:
        if self._stopped or place not in self._missing:
            return
        del self._missing[place]
        if not self._missing:
            self._done(self)

    def _later(self, place: TopicPartition) -> None:
        self._failed.append(place)
        if self._again is None and not self._stopped:
            self._again = self._node.loop.call_later(RETRY_S, self._write_again)
