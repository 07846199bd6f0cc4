"""Admin methods for transactions, including the detection and abortion of hanging ones.

A transaction hangs if a partition has an open transaction that no coordinator will end, because the
coordinator has lost it or never knew it. Consumers with read_committed then stop at its first record.
`find_hanging_transactions` detects them as Kafka's tool does: the last record is older than any transaction
timeout allows, and the coordinator of the producer, if there is one, has no transaction in that partition.
`abort_transaction` ends one by writing an abort marker to the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from konvene.client.consumer.fetch import LEADER_MOVED
from konvene.client.errors import BadResponse, KafkaError, Misconfigured, raise_for
from konvene.client.net.cluster import TRANSACTION, Cluster, TopicPartition
from konvene.client.producer.transaction_state import ProducerIdentity
from konvene.errors import Errors
from konvene.messages import describe_producers
from konvene.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from konvene.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from konvene.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from konvene.plurals import counted

__all__ = [
    "HangingTransaction", "ProducerState", "TransactionAdmin", "TransactionDescription",
    "TransactionListing",
]  # fmt: skip

_BATCH_SIZE = 500
"""Partitions per DescribeProducers request, as in Kafka's tool."""

_MOVED = LEADER_MOVED | {Errors.BROKER_NOT_AVAILABLE}


class TransactionListing(NamedTuple):
    """A row of ListTransactions, with the broker that returned it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """The state of a transactional id. Times are in ms."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """None if no transaction is open."""
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """State of a producer at the leader of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    """Coordinator epoch of its last marker; -1 before the first one."""
    transaction_start_offset: int | None
    """First offset of its open transaction; None if none is open."""


class HangingTransaction(NamedTuple):
    """An open transaction that no coordinator will end."""

    partition: TopicPartition
    producer: ProducerState


class TransactionAdmin:
    """The methods of `Admin` for transactions."""

    cluster: Cluster

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:  # fmt: skip
        """List the transactional ids of all brokers, filtered if a filter is given.

        `duration_ms` selects transactions that have been open for longer, `pattern` transactional ids that
        match an RE2 expression as a whole. Raises `UnsupportedVersion` if a broker is too old for a filter:
        `duration_ms` needs ListTransactions v1, `pattern` v2."""
        request = ListTransactionsRequest(
            state_filters=tuple(states), producer_id_filters=tuple(producer_ids), duration_filter=duration_ms,
            transactional_id_pattern=pattern or None,
        )  # fmt: skip
        await self.cluster.refresh([])
        found: list[TransactionListing] = []
        for node_id in sorted(self.cluster.metadata.nodes):
            patience, about = self.cluster.patience(), f"the transactions of broker {node_id}"
            while True:
                response: ListTransactionsResponse = await self.cluster.ask(request, node_id=node_id)
                if response.error_code != Errors.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await patience.after(KafkaError(response.error_code, about=about))
            raise_for(response.error_code, about=about)
            found += (
                TransactionListing(t.transactional_id, node_id, t.producer_id, t.transaction_state)
                for t in response.transaction_states
            )
        return sorted(found)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Describe a transactional id. Raises `KafkaError`, such as TRANSACTIONAL_ID_NOT_FOUND."""
        response: DescribeTransactionsResponse = await self.cluster.ask_coordinator(
            transactional_id, DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            lambda r: r.transaction_states[0].error_code if r.transaction_states else 0, kind=TRANSACTION,
        )  # fmt: skip
        if len(response.transaction_states) != 1:
            count = len(response.transaction_states)
            raise BadResponse(f"DescribeTransactions for one id answered {counted(count, 'row')}")
        found = response.transaction_states[0]
        raise_for(found.error_code, about=f"transactional id {transactional_id}")
        node = await self.cluster.find_coordinator(transactional_id, TRANSACTION)
        rows = (TopicPartition(t.topic, p) for t in found.topics for p in t.partitions)
        started = found.transaction_start_time_ms
        return TransactionDescription(
            transactional_id, node.id, found.transaction_state, found.producer_id, found.producer_epoch,
            found.transaction_timeout_ms, started if started >= 0 else None, tuple(sorted(rows)),
        )  # fmt: skip

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the active producers of partitions, from their leaders or from the replica on `broker_id`.

        Raises `KafkaError` for the first partition that fails."""
        wanted = sorted(set(partitions))
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
        patience = self.cluster.patience()
        while missing := [tp for tp in wanted if tp not in found]:
            by_broker = await self._by_broker(missing, broker_id)
            try:
                for node_id, rows in by_broker.items():
                    for start in range(0, len(rows), _BATCH_SIZE):
                        found |= await self._producers_at(node_id, rows[start : start + _BATCH_SIZE])
            except KafkaError as error:
                if broker_id is not None or error.code not in _MOVED:
                    raise
                for tp in missing:
                    self.cluster.forget_topic(tp.topic)
                await patience.pause(error)
        return {tp: found[tp] for tp in wanted}

    async def _by_broker(
        self, partitions: list[TopicPartition], broker_id: int | None
    ) -> dict[int, list[TopicPartition]]:
        """Group partitions by the broker to send a request to: their leaders, or `broker_id` if given."""
        if broker_id is None:
            return await self.cluster.by_leader(partitions)
        if broker_id not in self.cluster.metadata.nodes:
            await self.cluster.refresh([])
        if broker_id not in self.cluster.metadata.nodes:
            raise Misconfigured(f"there is no broker with id {broker_id}")
        return {broker_id: partitions}

    async def _producers_at(
        self, node_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        request = DescribeProducersRequest(
            topics=tuple(
                TopicRequest(name=topic, partition_indexes=rows)
                for topic, rows in _by_topic(partitions).items()
            )
        )
        response: DescribeProducersResponse = await self.cluster.ask(request, node_id=node_id)
        found = {}
        for t in response.topics:
            for p in t.partitions:
                tp = TopicPartition(t.name, p.partition_index)
                raise_for(p.error_code, p.error_message, about=f"the producers of {tp}")
                found[tp] = tuple(sorted(map(_producer, p.active_producers)))
        if set(found) != set(partitions):
            raise BadResponse(
                f"DescribeProducers for {counted(len(partitions), 'partition')} answered {len(found)}"
            )
        return found

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort a hanging transaction: write an abort marker to one partition, without its coordinator.

        Raises `KafkaError`, such as INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED."""
        topics = (WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,)),)
        marker = WritableTxnMarker(
            producer_id=producer_id, producer_epoch=producer_epoch, transaction_result=False, topics=topics,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        patience = self.cluster.patience()
        while True:
            leader = await self.cluster.leader(*partition)
            response = await self.cluster.ask(WriteTxnMarkersRequest(markers=(marker,)), node_id=leader)
            codes = [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
            if len(codes) != 1:
                raise BadResponse(f"WriteTxnMarkers for one partition answered {len(codes)}")
            if not codes[0]:
                return
            error = KafkaError(codes[0], about=f"the transaction of producer {producer_id} in {partition}")
            if error.code not in _MOVED:
                raise error
            self.cluster.forget_topic(partition.topic)
            await patience.pause(error)

    async def fence_producer(self, transactional_id: str) -> ProducerIdentity:
        """Fence the producer of a transactional id; its coordinator aborts the open transaction."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.cluster.settings.request_timeout_ms
        )
        patience = self.cluster.patience()
        while True:
            response: InitProducerIdResponse = await self.cluster.ask_coordinator(
                transactional_id,
                request,
                lambda r: r.error_code,
                kind=TRANSACTION,
                timeout_ms=patience.left_ms,
            )
            if not response.error_code:
                return ProducerIdentity(response.producer_id, response.producer_epoch)
            await patience.after(
                KafkaError(response.error_code, about=f"transactional id {transactional_id}")
            )

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, now_ms: int, max_transaction_timeout_ms: int,
        broker_id: int | None = None,
    ) -> list[HangingTransaction]:  # fmt: skip
        """Return the hanging transactions of partitions.

        A transaction can hang if its last record is older than `max_transaction_timeout_ms` at `now_ms`.
        `broker_id` is as in `describe_producers`."""
        states = await self.describe_producers(partitions, broker_id=broker_id)
        candidates = [
            HangingTransaction(tp, producer)
            for tp, producers in states.items()
            for producer in producers
            if producer.transaction_start_offset is not None
            and now_ms - producer.last_timestamp > max_transaction_timeout_ms
        ]
        in_progress = await self._in_progress({each.producer.producer_id for each in candidates})
        return [
            each
            for each in candidates
            if each.partition not in in_progress.get(each.producer.producer_id, ())
        ]

    async def _in_progress(self, producer_ids: set[int]) -> Mapping[int, tuple[TopicPartition, ...]]:
        """Return, by producer id, the partitions of the transaction that its coordinator has open."""
        if not producer_ids:
            return {}
        found = {}
        for listing in await self.list_transactions(producer_ids=sorted(producer_ids)):
            if listing.producer_id not in producer_ids:
                continue
            try:
                described = await self.describe_transaction(listing.transactional_id)
            except KafkaError as error:
                if error.code != Errors.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                continue
            found[listing.producer_id] = described.partitions
        return found


def _producer(p: describe_producers.ProducerState) -> ProducerState:
    start = p.current_txn_start_offset
    return ProducerState(
        p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp, p.coordinator_epoch,
        start if start >= 0 else None,
    )  # fmt: skip


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    grouped: dict[str, tuple[int, ...]] = {}
    for topic, partition in sorted(partitions):
        grouped[topic] = (*grouped.get(topic, ()), partition)
    return grouped
