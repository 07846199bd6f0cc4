"""Transactional producer: records and consumer offsets of a transaction become visible together or not at
all.

It extends `Producer` with a transactional id (KIP-98) and, if the cluster supports it, with transactions of
the second generation (KIP-890), in which brokers add partitions to a transaction and each transaction has its
own producer epoch. `TransactionState` has the states and decides what an error means; this module sends the
requests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self, TypeVar

from konvene.client.errors import BadResponse, ClientError, KafkaError, TransactionFailed
from konvene.client.net.cluster import GROUP, TRANSACTION, Cluster, Patience, Request, TopicPartition
from konvene.client.net.connection import Connection
from konvene.client.producer.producer import Producer, Waiting
from konvene.client.producer.transaction_offsets import (
    ConsumerGroupMetadata,
    Offsets,
    add_offsets,
    answered,
    commit_offsets,
    first_error,
)
from konvene.client.producer.transaction_state import (
    FEATURE,
    SERVER_SIDE,
    ProducerIdentity,
    State,
    TransactionState,
)
from konvene.codec.batches import Record, build
from konvene.codec.compression import Compression
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.plurals import counted

__all__ = ["ConsumerGroupMetadata", "TransactionalProducer"]

R = TypeVar("R", bound=Struct)

_SHORT_PAUSE_MS = 20
"""Backoff before the first retry: usually the markers of the previous transaction are pending."""

_OF_FIRST = {"Produce": 11, "EndTxn": 4, "AddPartitionsToTxn": 3}
"""Newest API versions of the first generation of the protocol."""


class TransactionalProducer(Producer):
    """A transactional producer as Kafka's.

    `transaction_version` limits the protocol to 1 or 2; version 2 also needs support of the cluster. The
    coordinator aborts a transaction after `transaction_timeout_ms`. Use as `async with`, which calls
    `init_transactions`, or call it first. Methods raise `OutOfTurn` in the wrong state, `ProducerFenced` if
    another producer uses the id, and `TransactionFailed` if the transaction can only be aborted."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, transaction_timeout_ms: int = 60_000,
        transaction_version: int = SERVER_SIDE, compression: Compression = Compression.NONE,
        linger_ms: int = 0, request_timeout_ms: int = 30_000, delivery_timeout_ms: int = 120_000,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        super().__init__(
            cluster, acks=-1, compression=compression, linger_ms=linger_ms,
            request_timeout_ms=request_timeout_ms, delivery_timeout_ms=delivery_timeout_ms, clock_ms=clock_ms,
        )  # fmt: skip
        self.transactional_id: str = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_version = transaction_version
        self._transaction = TransactionState(transactional_id)
        self._level = 0

    def __repr__(self) -> str:
        return f"<TransactionalProducer {self._transaction!r}>"

    @property
    def state(self) -> State:
        return self._transaction.state

    @property
    def identity(self) -> ProducerIdentity:
        """The current producer id and epoch."""
        return self._transaction.producer

    async def __aenter__(self) -> Self:
        if self.state is State.UNINITIALIZED:
            await self.init_transactions()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            with suppress(ClientError):
                await self.close()

    # API

    async def init_transactions(self) -> None:
        """Acquire the transactional id and fence its previous producer.

        Waits until an open transaction of the previous producer is completed."""
        self._transaction.call("init_transactions")
        await self._identify(ProducerIdentity())
        self._transaction.set_version(self._level)
        self._transaction.move(State.READY)

    def begin_transaction(self) -> None:
        self._transaction.call("begin_transaction")
        self._transaction.move(State.IN_TRANSACTION)

    async def send_offsets_to_transaction(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        """Add consumer offsets to the transaction. `offsets` are the next offsets to read by partition.

        `group` is `Consumer.group_metadata()`, or a group id for offsets without member checks."""
        self._transaction.call("send_offsets_to_transaction")
        if not offsets:
            return
        metadata = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        try:
            if self._transaction.adds_partitions:
                about = f"adding group {metadata.group_id} to the transaction of {self.transactional_id}"
                request = add_offsets(self._transaction, metadata.group_id)
                await self._send_to_coordinator(request, _error_code, about)
            self._transaction.started = True
            await self._commit_offsets(metadata, offsets)
        except ClientError as error:
            raise self._transaction.handle_error(error) from None

    async def commit_transaction(self) -> None:
        """Wait for all records, then commit. Raises `TransactionFailed` if a record could not be written."""
        self._transaction.call("commit_transaction")
        self._transaction.move(State.COMMITTING)
        await self.flush()
        self._transaction.raise_failed()
        await self._end(committed=True)

    async def abort_transaction(self) -> None:
        """Abort the transaction. Queued records are not sent."""
        self._transaction.call("abort_transaction")
        self._transaction.move(State.ABORTING)
        queued, self._queue = self._queue, {}
        for rows in queued.values():
            _fail_futures(rows, TransactionFailed(f"the transaction of {self.transactional_id} was aborted"))
        await self.flush()
        if self.state is not State.ABORTING:
            self._transaction.raise_failed()
        await self._end(committed=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Context manager of one transaction: commits at the end, aborts if the body or the commit raises."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                with suppress(ClientError):
                    await self.abort_transaction()
            raise

    async def close(self) -> None:
        """Abort the open transaction. Does not close the cluster."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            await self.abort_transaction()

    # requests to coordinators

    async def _identify(self, before: ProducerIdentity) -> None:
        """Request a producer id and epoch; if `before` is not -1, -1, the next epoch of that producer."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
        )
        try:
            response: InitProducerIdResponse = await self._send_to_coordinator(
                request, _error_code, f"taking over transactional id {self.transactional_id}"
            )
        except ClientError as error:
            raise self._final(error) from None
        self._transaction.set_identity(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def _end(self, *, committed: bool) -> None:
        transaction = self._transaction
        if transaction.started:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=transaction.producer.producer_id,
                producer_epoch=transaction.producer.epoch,
                committed=committed,
            )
            about = f"{'committing' if committed else 'aborting'} the transaction of {self.transactional_id}"
            try:
                response: EndTxnResponse = await self._send_to_coordinator(request, _error_code, about)
            except ClientError as error:
                raise self._final(error, abortable=None if committed else False) from None
            transaction.started = False
            if response.producer_id >= 0:
                transaction.set_identity(ProducerIdentity(response.producer_id, response.producer_epoch))
        transaction.set_version(self._level)
        if transaction.bump:
            await self._identify(transaction.producer)
        transaction.reset()

    async def _commit_offsets(self, group: ConsumerGroupMetadata, offsets: Offsets) -> None:
        """Send TxnOffsetCommit until all partitions are committed; raise a final error of one of them."""
        about = f"the offsets of group {group.group_id} in the transaction of {self.transactional_id}"
        rest = dict(offsets)
        patience = self._patience(self.cluster.settings.default_api_timeout_ms)
        while rest:
            names = self.cluster.metadata.names
            response = await self.cluster.ask_coordinator(
                group.group_id, commit_offsets(self.cluster, self._transaction, group, rest), first_error,
                kind=GROUP, timeout_ms=patience.left_ms,
            )  # fmt: skip
            codes = answered(names, response)
            if set(codes) != set(rest):
                raise BadResponse(
                    f"TxnOffsetCommit for {counted(len(rest), 'partition')} answered {len(codes)}"
                )
            rest = {tp: at for tp, at in rest.items() if codes[tp]}
            for tp in rest:
                if codes[tp] == Errors.UNKNOWN_TOPIC_ID:
                    self.cluster.forget_topic(tp.topic)  # It was recreated, and is found by its name.
            if rest:
                await patience.after(KafkaError(first_error(response), about=about))

    async def _send_to_coordinator(self, request: Struct, code: Callable[[R], int], about: str) -> R:
        """Send a request to the transaction coordinator; retry until it succeeds or fails for good."""
        patience = self._patience(self.cluster.settings.default_api_timeout_ms)
        while True:
            response = await self.cluster.ask_coordinator(
                self.transactional_id, self._versioned(request), code, kind=TRANSACTION,
                timeout_ms=patience.left_ms,
            )  # fmt: skip
            if not code(response):
                return response
            await patience.after(KafkaError(code(response), about=about))

    def _versioned(self, request: Struct) -> Request:
        """Return a function that chooses the version of `request` for a connection.

        It also stores the `transaction.version` level that the broker reports."""
        name = type(request).__name__.removesuffix("Request")

        def speak(connection: Connection) -> tuple[Struct, int]:
            self._level = min(connection.features.get(FEATURE, 0), self.transaction_version)
            return request, self._bounded(connection, name)

        return speak

    def _bounded(self, connection: Connection, name: str) -> int:
        version = connection.version_of(BY_NAME[name].key)
        return min(version, _OF_FIRST.get(name, version)) if self._transaction.adds_partitions else version

    def _final(self, error: ClientError, *, abortable: bool | None = None) -> ClientError:
        """Return the error to raise after a failed request.

        A retriable error means that the call timed out and may be repeated; others change the state."""
        return error if error.retriable else self._transaction.handle_error(error, abortable=abortable)

    # hooks of Producer

    def _admit(self) -> None:
        self._transaction.call("send")
        if not self._transaction.adds_partitions:
            self._transaction.started = True

    def _patience(self, timeout_ms: int | None = None) -> Patience:
        settings = self.cluster.settings
        pause_ms = min(_SHORT_PAUSE_MS, settings.retry_backoff_ms)
        return Patience(settings._replace(retry_backoff_ms=pause_ms), timeout_ms or self.delivery_timeout_ms)

    async def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Fail if the transaction cannot be committed; in the first generation add new partitions to it."""
        self._transaction.raise_failed()
        if self.state is State.ABORTING:
            raise TransactionFailed(f"the transaction of {self.transactional_id} was aborted")
        fresh = sorted(set(partitions) - self._transaction.enlisted)
        if fresh and self._transaction.adds_partitions:
            await self._add_partitions(fresh)

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Send AddPartitionsToTxn once; the round of requests is retried as a whole."""
        topics: dict[str, tuple[int, ...]] = {}
        for tp in partitions:
            topics[tp.topic] = (*topics.get(tp.topic, ()), tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._transaction.producer.producer_id,
            v3_and_below_producer_epoch=self._transaction.producer.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()
            ),
        )
        response = await self.cluster.ask_coordinator(
            self.transactional_id, self._versioned(request), _partition_error, kind=TRANSACTION
        )
        code = _partition_error(response)
        if code:
            error = KafkaError(code, about=f"adding partitions to the transaction of {self.transactional_id}")
            raise self._final(error, abortable=code != Errors.INVALID_TXN_STATE)
        self._transaction.add_partitions(partitions)

    def _version(self, connection: Connection) -> int:
        return self._bounded(connection, "Produce")

    def _batch(self, tp: TopicPartition, rows: list[Record]) -> bytes:
        return build(
            rows, compression=self.compression, producer_id=self._transaction.producer.producer_id,
            producer_epoch=self._transaction.producer.epoch,
            base_sequence=self._transaction.next_sequence(tp), transactional=True,
        )  # fmt: skip

    def _is_duplicate(self, code: int) -> bool:
        return code == Errors.DUPLICATE_SEQUENCE_NUMBER

    def _written(self, tp: TopicPartition, count: int) -> None:
        self._transaction.advance_sequence(tp, count)

    def _failed(self, tp: TopicPartition, rows: list[Waiting], error: BaseException) -> None:
        """Fail the futures of a batch. The commit raises the error as well."""
        if isinstance(error, ClientError):
            self._transaction.handle_lost_records(error)
        _fail_futures(rows, error)


def _fail_futures(rows: list[Waiting], error: BaseException) -> None:
    for waiting in rows:
        if not waiting.done.done():
            waiting.done.set_exception(error)
            waiting.done.exception()  # Retrieved: the commit raises it as well.


def _error_code(response: AddOffsetsToTxnResponse | EndTxnResponse | InitProducerIdResponse) -> int:
    return response.error_code


def _partition_error(response: AddPartitionsToTxnResponse) -> int:
    """Return the error code because of which the coordinator skipped other partitions, or 0."""
    codes = [
        p.partition_error_code for t in response.results_by_topic_v3_and_below for p in t.results_by_partition
    ]
    failed = [code for code in codes if code]
    return next((c for c in failed if c != Errors.OPERATION_NOT_ATTEMPTED), failed[0] if failed else 0)
