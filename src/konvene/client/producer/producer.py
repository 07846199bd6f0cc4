"""Producer: writes records to partitions in order, and returns their offsets.

Records are queued until the next iteration of the event loop (or `linger_ms`) and sent as one batch per
partition and one request per broker. Only one round of requests is in flight at a time: this keeps the order
of each partition when a batch is retried, at the cost of throughput. The producer is not idempotent: a batch
whose response was lost is sent again and may be written twice.

The key of a record selects its partition as in Kafka's clients (murmur2). Records without a key use one
partition for a round, then the next one.

`TransactionalProducer` extends this class and overrides the hooks at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import NamedTuple, Self

from konvene.client.consumer.fetch import LEADER_MOVED
from konvene.client.errors import BadResponse, ClientError, ConnectionLost, KafkaError
from konvene.client.net.cluster import Cluster, Patience, TopicPartition
from konvene.client.net.connection import Connection
from konvene.codec.batches import Headers, Record, build
from konvene.codec.compression import Compression
from konvene.codec.hashes import key_partition
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from konvene.plurals import counted

__all__ = ["Produced", "Producer", "Waiting"]

_BATCH_BYTES = 512 * 1024
_OVERHEAD = 32  # Approximate bytes of a record besides its key, value and headers.


class Produced(NamedTuple):
    """Partition, offset and timestamp of a written record; offset -1 with acks 0."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Waiting(NamedTuple):
    """A queued record with the future of its result."""

    record: Record
    done: asyncio.Future[Produced]

    @property
    def size(self) -> int:
        r = self.record
        headers = sum(len(k) + len(v or b"") for k, v in r.headers)
        return len(r.key or b"") + len(r.value or b"") + headers + _OVERHEAD


class Producer:
    """A producer as Kafka's without idempotence.

    `acks` is -1 (all in-sync replicas), 0 or 1. `linger_ms` delays batches, `request_timeout_ms` bounds one
    request and `delivery_timeout_ms` a record with all retries. `clock_ms` returns the timestamp in ms of
    records that have none."""

    transactional_id: str | None = None

    def __init__(
        self, cluster: Cluster, *, acks: int = -1, compression: Compression = Compression.NONE,
        linger_ms: int = 0, request_timeout_ms: int = 30_000, delivery_timeout_ms: int = 120_000,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.acks = acks
        self.compression = compression
        self.linger_ms = linger_ms
        self.request_timeout_ms = request_timeout_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self._clock_ms = clock_ms
        self._queue: dict[TopicPartition, list[Waiting]] = {}
        self._next_partition: dict[str, int] = {}
        self._round: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Producer acks {self.acks}: {sum(map(len, self._queue.values()))} records wait>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.flush()

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: Headers = (),
        partition: int | None = None, timestamp_ms: int | None = None,
    ) -> asyncio.Future[Produced]:  # fmt: skip
        """Queue a record and return a future of its `Produced`; the future may raise `ClientError`.

        Waits only for the metadata of the topic, which the broker may create. Raises `KafkaError` for a
        partition that does not exist."""
        known = await self.cluster.topic(topic, create=True)
        if partition is not None and partition >= len(known.partitions):
            self.cluster.forget_topic(topic)  # It may have been added since.
            known = await self.cluster.topic(topic, create=True)
        if partition is None:
            count = len(known.partitions)
            partition = (
                self._next_partition.get(topic, 0) % count if key is None else key_partition(key, count)
            )
        elif not 0 <= partition < len(known.partitions):
            existing = counted(len(known.partitions), "partition")
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has {existing}, none is number {partition}",
            )
        self._admit()
        at = self._clock_ms() if timestamp_ms is None else timestamp_ms
        done: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()
        waiting = Waiting(Record(0, at, key, value, headers), done)
        self._queue.setdefault(TopicPartition(topic, partition), []).append(waiting)
        if self._round is None or self._round.done():
            self._round = asyncio.ensure_future(self._send_all())
        return done

    async def flush(self) -> None:
        """Wait until all queued records are acknowledged or have failed; their futures have the results."""
        while self._round is not None and (self._queue or not self._round.done()):
            await asyncio.wait([self._round])

    async def _send_all(self) -> None:
        if self.linger_ms:
            await asyncio.sleep(self.linger_ms / 1000)
        else:
            await asyncio.sleep(0)
        while self._queue:
            taken = {tp: self._take(tp) for tp in sorted(self._queue)}
            for topic in {tp.topic for tp in taken}:
                self._next_partition[topic] = self._next_partition.get(topic, 0) + 1
            patience = self._patience()
            while taken:
                error = await self._send_round(taken)
                if error is None:
                    break
                try:
                    await patience.after(error)
                except ClientError as final:
                    for tp, rows in taken.items():
                        self._failed(tp, rows, final)
                    break

    def _take(self, tp: TopicPartition) -> list[Waiting]:
        """Remove and return the next batch of a partition."""
        queue = self._queue[tp]
        size, count = 0, 0
        while count < len(queue) and (count == 0 or size + queue[count].size <= _BATCH_BYTES):
            size += queue[count].size
            count += 1
        taken, rest = queue[:count], queue[count:]
        if rest:
            self._queue[tp] = rest
        else:
            del self._queue[tp]
        return taken

    async def _send_round(self, taken: dict[TopicPartition, list[Waiting]]) -> ClientError | None:
        """Send each batch once. Removes completed batches from `taken`; returns the last retriable error, or
        None."""
        again: ClientError | None = None
        try:
            await self._prepare(taken)
            grouped = await self.cluster.by_leader(taken)
        except ClientError as error:
            return error
        rounds = (self._send_to(n, {tp: taken[tp] for tp in tps}) for n, tps in grouped.items())
        outcomes = await asyncio.gather(*rounds, return_exceptions=True)
        for partitions, outcome in zip(grouped.values(), outcomes, strict=True):
            if isinstance(outcome, ClientError):
                again = again if again is not None and not outcome.retriable else outcome
                for tp in partitions:
                    self.cluster.forget_topic(tp.topic)
                    if not outcome.retriable:
                        self._failed(tp, taken.pop(tp), outcome)
            elif isinstance(outcome, BaseException):
                for tp in partitions:
                    self._failed(tp, taken.pop(tp), outcome)
            else:
                for tp in partitions:
                    again = self._settle(tp, taken, outcome) or again
        return again if taken else None

    async def _send_to(
        self, node_id: int, batches: dict[TopicPartition, list[Waiting]]
    ) -> dict[TopicPartition, PartitionProduceResponse]:
        connection = await self.cluster.node(node_id)
        request, version = self._request(connection, batches)
        if self.acks == 0:
            connection.send_without_response(request, version)
            return {tp: PartitionProduceResponse(index=tp.partition, base_offset=-1) for tp in batches}
        response: ProduceResponse = await connection.send(
            request, version, timeout_ms=self.request_timeout_ms + 1_000
        )
        names = self.cluster.metadata.names
        return {
            TopicPartition(t.name if version <= 12 else names.get(bytes(t.topic_id), ""), p.index): p
            for t in response.responses
            for p in t.partition_responses
        }

    def _request(
        self, connection: Connection, batches: dict[TopicPartition, list[Waiting]]
    ) -> tuple[ProduceRequest, int]:
        """Return a Produce request and its version: topic ids from version 13, names before."""
        version = self._version(connection)
        topics: dict[str, list[PartitionProduceData]] = {}
        for tp, rows in batches.items():
            data = self._batch(tp, [w.record._replace(offset=i) for i, w in enumerate(rows)])
            topics.setdefault(tp.topic, []).append(PartitionProduceData(index=tp.partition, records=data))
        known = self.cluster.metadata.topics
        ids = {name: known[name].topic_id if name in known else ZERO_UUID for name in topics}
        if version > 12 and ZERO_UUID in ids.values():
            version = 12
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=name, topic_id=ids[name], partition_data=tuple(rows))
                for name, rows in topics.items()
            ),
        )
        return request, version

    def _settle(
        self, tp: TopicPartition, taken: dict[TopicPartition, list[Waiting]],
        responses: dict[TopicPartition, PartitionProduceResponse],
    ) -> ClientError | None:  # fmt: skip
        """Complete the futures of the batch of `tp` and remove it from `taken`.

        After a retriable error the batch stays in `taken`, and the error is returned; otherwise None."""
        response = responses.get(tp)
        if response is None:
            self._failed(tp, taken.pop(tp), BadResponse(f"Produce left out {tp}"))
            return None
        if response.error_code == 0 or self._is_duplicate(response.error_code):
            self._written(tp, len(taken[tp]))
            for i, waiting in enumerate(taken.pop(tp)):
                offset = response.base_offset + i if response.base_offset >= 0 else -1
                at = response.log_append_time_ms
                if not waiting.done.done():
                    waiting.done.set_result(Produced(*tp, offset, waiting.record.timestamp if at < 0 else at))
            return None
        error = KafkaError(response.error_code, response.error_message, about=f"writing to {tp}")
        if response.error_code in LEADER_MOVED:
            self.cluster.forget_topic(tp.topic)
            return error if error.retriable else ConnectionLost(str(error))
        if error.retriable:
            return error
        self._failed(tp, taken.pop(tp), error)
        return None

    # hooks for TransactionalProducer

    def _admit(self) -> None:
        """Hook: check that a record may be queued; raise otherwise."""

    def _patience(self, timeout_ms: int | None = None) -> Patience:
        return self.cluster.patience(timeout_ms or self.delivery_timeout_ms)

    async def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Hook before each round of requests; if it raises, the round fails with that error."""

    def _version(self, connection: Connection) -> int:
        return connection.version_of(BY_NAME["Produce"].key)

    def _batch(self, tp: TopicPartition, rows: list[Record]) -> bytes:
        return build(rows, compression=self.compression)

    def _is_duplicate(self, code: int) -> bool:
        """Return True if the code means that the batch has been written before."""
        return False

    def _written(self, tp: TopicPartition, count: int) -> None:
        """Hook: `count` records of a partition were acknowledged."""

    def _failed(self, tp: TopicPartition, rows: list[Waiting], error: BaseException) -> None:
        """Fail the futures of a batch that will not be retried."""
        for waiting in rows:
            if not waiting.done.done():
                waiting.done.set_exception(error)
