"""What an administrator asks of transactions: which there are, who writes where, and to end one that hangs.

A transaction hangs where a partition waits for its end and no coordinator knows of it: the coordinator forgot
it, or never heard of it. Consumers that read what is committed then wait as well, for good. Found is such a
one as by Kafka's tool: its last record is older than any transaction may be (`find_hanging_transactions`),
and the coordinator of its producer, if there is one, does not have the partition. It is ended by a marker
that is written to the partition itself (`abort_transaction`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from konvene.client.consumer.fetch import LEADER_MOVED
from konvene.client.errors import BadResponse, KafkaError, Misconfigured, raise_for
from konvene.client.net.cluster import TRANSACTION, Cluster, TopicPartition
from konvene.client.producer.transaction_state import ProducerIdentity
from konvene.errors import Errors
from konvene.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from konvene.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

__all__ = [
    "HangingTransaction", "ProducerState", "TransactionAdmin", "TransactionDescription",
    "TransactionListing",
]  # fmt: skip

_AT_ONCE = 500
"""Partitions in one DescribeProducers, as many as Kafka's tool asks for."""

_MOVED = LEADER_MOVED | {Errors.BROKER_NOT_AVAILABLE}


class TransactionListing(NamedTuple):
    """A row of ListTransactions, and the broker that said it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator has it; times in ms."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """None where no transaction has begun."""
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """A producer as the leader of a partition has it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    """Of its last marker; -1 before there was one."""
    transaction_start_offset: int | None
    """Where its open transaction begins in the partition; None without one."""


class HangingTransaction(NamedTuple):
    """An open transaction that no coordinator will end."""

    partition: TopicPartition
    producer: ProducerState


class TransactionAdmin:
    """Administration of transactions in the cluster behind `cluster`."""

    cluster: Cluster

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:  # fmt: skip
        """The transactional ids of all brokers, by id; only those that the filters leave, where there are
        any.

        `duration_ms`: only transactions that have run longer; `pattern`: only ids that match, whole, an
        expression of RE2. They need ListTransactions v1 and v2: `UnsupportedVersion` where a broker lacks
        it."""
        request = ListTransactionsRequest(
            state_filters=tuple(states), producer_id_filters=tuple(producer_ids), duration_filter=duration_ms,
            transactional_id_pattern=pattern or None,
        )  # fmt: skip
        await self.cluster.refresh([])
        found: list[TransactionListing] = []
        for node_id in sorted(self.cluster.metadata.nodes):
            patience, about = self.cluster.patience(), f"the transactions of broker {node_id}"
            while True:
                answer: ListTransactionsResponse = await self.cluster.ask(request, node_id=node_id)
                if answer.error_code != Errors.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await patience.after(KafkaError(answer.error_code, about=about))
            raise_for(answer.error_code, about=about)
            found += (
                TransactionListing(t.transactional_id, node_id, t.producer_id, t.transaction_state)
                for t in answer.transaction_states
            )
        return sorted(found)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """What the coordinator knows. Raises `KafkaError` TRANSACTIONAL_ID_NOT_FOUND where there is none."""
        answer = await self.cluster.ask_coordinator(
            transactional_id, DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            lambda a: a.transaction_states[0].error_code if a.transaction_states else 0, kind=TRANSACTION,
        )  # fmt: skip
        if len(answer.transaction_states) != 1:
            count = len(answer.transaction_states)
            raise BadResponse(f"DescribeTransactions for one id answered {count} rows")
        found = answer.transaction_states[0]
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
        """The active producers of partitions, as their leaders have them, or a broker with a replica.

        Raises `KafkaError` for the first partition that cannot answer."""
        wanted = sorted(set(partitions))
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
        patience = self.cluster.patience()
        while missing := [tp for tp in wanted if tp not in found]:
            asked = await self._asked(missing, broker_id)
            try:
                for node_id, rows in asked.items():
                    for start in range(0, len(rows), _AT_ONCE):
                        found |= await self._producers_at(node_id, rows[start : start + _AT_ONCE])
            except KafkaError as error:
                if broker_id is not None or error.code not in _MOVED:
                    raise
                for tp in missing:
                    self.cluster.forget_topic(tp.topic)
                await patience.pause(error)
        return {tp: found[tp] for tp in wanted}

    async def _asked(
        self, partitions: list[TopicPartition], broker_id: int | None
    ) -> dict[int, list[TopicPartition]]:
        """Whom to ask for which."""
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
        answer: DescribeProducersResponse = await self.cluster.ask(request, node_id=node_id)
        found = {}
        for t in answer.topics:
            for p in t.partitions:
                tp = TopicPartition(t.name, p.partition_index)
                raise_for(p.error_code, p.error_message, about=f"the producers of {tp}")
                found[tp] = tuple(sorted(map(_producer, p.active_producers)))
        if set(found) != set(partitions):
            raise BadResponse(f"DescribeProducers for {len(partitions)} partitions answered {len(found)}")
        return found

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker that aborts a producer's transaction in one partition.

        Only for one that hangs: no coordinator is asked. Raises `KafkaError`, such as INVALID_PRODUCER_EPOCH
        or TRANSACTION_COORDINATOR_FENCED."""
        topics = (WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,)),)
        marker = WritableTxnMarker(
            producer_id=producer_id, producer_epoch=producer_epoch, transaction_result=False, topics=topics,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        patience = self.cluster.patience()
        while True:
            leader = await self.cluster.leader(*partition)
            answer = await self.cluster.ask(WriteTxnMarkersRequest(markers=(marker,)), node_id=leader)
            codes = [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]
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
        """Take a transactional id away from whoever has it; its open transaction is aborted by its
        coordinator."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.cluster.settings.request_timeout_ms
        )
        patience = self.cluster.patience()
        while True:
            answer = await self.cluster.ask_coordinator(
                transactional_id,
                request,
                lambda a: a.error_code,
                kind=TRANSACTION,
                timeout_ms=patience.left_ms,
            )
            if not answer.error_code:
                return ProducerIdentity(answer.producer_id, answer.producer_epoch)
            await patience.after(KafkaError(answer.error_code, about=f"transactional id {transactional_id}"))

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, now_ms: int, max_transaction_timeout_ms: int,
        broker_id: int | None = None,
    ) -> list[HangingTransaction]:  # fmt: skip
        """Open transactions of these partitions that nobody will end: see above."""
        states = await self.describe_producers(partitions, broker_id=broker_id)
        candidates = [
            HangingTransaction(tp, producer)
            for tp, producers in states.items()
            for producer in producers
            if producer.transaction_start_offset is not None
            and now_ms - producer.last_timestamp > max_transaction_timeout_ms
        ]
        known = await self._in_progress({each.producer.producer_id for each in candidates})
        return [each for each in candidates if each.partition not in known.get(each.producer.producer_id, ())]

    async def _in_progress(self, producer_ids: set[int]) -> Mapping[int, tuple[TopicPartition, ...]]:
        """The partitions in which each producer's coordinator has a transaction to end."""
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


def _producer(p: Any) -> ProducerState:
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
