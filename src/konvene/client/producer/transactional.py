"""A transactional producer: what it writes, and the offsets that it commits, appear together or not at all.

    async with TransactionalProducer(cluster, "orders-1") as producer:
        async with producer.transaction():
            await producer.send("orders", b"...")
            await producer.send_offsets_to_transaction({partition: 7}, consumer.group_metadata())

The calls are Kafka's, and so is what each of them does to the state (`transaction_state`). `async with` on
the producer takes the transactional id over (`init_transactions`), which fences whoever had it before and
ends what that left open; at the end an open transaction is aborted. `transaction()` commits where its body
ends well, and aborts where it does not.

One request to the coordinator is under way at a time, and one batch for each partition, so that a batch which
is sent again has the sequence that it had: the log takes it once. After an error that says so in its state
the transaction can only be aborted (`TransactionFailed`); after a fatal one, such as `ProducerFenced`, the
producer is of no use any more. A commit or abort whose time was over is called again: nobody knows whether it
was carried out.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

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
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest

__all__ = ["ConsumerGroupMetadata", "TransactionalProducer"]

_SHORT_PAUSE_MS = 20
"""The pause before the first repetition: mostly the markers of the last transaction are waited for."""

_OF_FIRST = {"Produce": 11, "EndTxn": 4, "AddPartitionsToTxn": 3}
"""The newest versions in which a client speaks the first generation of the protocol; the last, at all."""


class TransactionalProducer(Producer):
    """Writes records in transactions. `transaction_version` bounds what is spoken: 1, or 2 where the cluster
    does.

    `transaction_timeout_ms`: after this the coordinator aborts a transaction by itself."""

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
        """The producer id and the epoch that are written with."""
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

    # what is called

    async def init_transactions(self) -> None:
        """Take the transactional id over. Waits until what its last holder left open has been ended."""
        self._transaction.call("init_transactions")
        await self._identify(ProducerIdentity())
        self._transaction.speaks(self._level)
        self._transaction.move(State.READY)

    def begin_transaction(self) -> None:
        self._transaction.call("begin_transaction")
        self._transaction.move(State.IN_TRANSACTION)

    async def send_offsets_to_transaction(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        """Commit a group's offsets with this transaction: what is read next, per partition."""
        self._transaction.call("send_offsets_to_transaction")
        if not offsets:
            return
        who = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        try:
            if self._transaction.adds_partitions:
                about = f"adding group {who.group_id} to the transaction of {self.transactional_id}"
                request = add_offsets(self._transaction, who.group_id)
                await self._ask(request, lambda a: int(a.error_code), about)
            self._transaction.started = True
            await self._commit_offsets(who, offsets)
        except ClientError as error:
            raise self._transaction.refused(error) from None

    async def commit_transaction(self) -> None:
        """Wait for all records, then commit. Raises `TransactionFailed` where one could not be written."""
        self._transaction.call("commit_transaction")
        self._transaction.move(State.COMMITTING)
        await self.flush()
        self._transaction.raise_failed()
        await self._end(committed=True)

    async def abort_transaction(self) -> None:
        """Take back everything since `begin_transaction`. Records that wait are not sent."""
        self._transaction.call("abort_transaction")
        self._transaction.move(State.ABORTING)
        queued, self._queue = self._queue, {}
        for rows in queued.values():
            _tell(rows, TransactionFailed(f"the transaction of {self.transactional_id} was aborted"))
        await self.flush()
        if self.state is not State.ABORTING:
            self._transaction.raise_failed()
        await self._end(committed=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """One transaction: committed at the end, or aborted where the body, or the commit, raises."""
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
        """Abort what is open. Does not close the cluster."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            await self.abort_transaction()

    # requests to coordinators

    async def _identify(self, before: ProducerIdentity) -> None:
        """A producer id and epoch: new ones, or the next epoch after `before`."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
        )
        try:
            answer = await self._ask(
                request, lambda a: int(a.error_code), f"taking over transactional id {self.transactional_id}"
            )
        except ClientError as error:
            raise self._final(error) from None
        self._transaction.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))

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
                answer = await self._ask(request, lambda a: int(a.error_code), about)
            except ClientError as error:
                raise self._final(error, abortable=None if committed else False) from None
            transaction.started = False
            if answer.producer_id >= 0:
                transaction.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        transaction.speaks(self._level)
        if transaction.bump:
            await self._identify(transaction.producer)
        transaction.ended()

    async def _commit_offsets(self, group: ConsumerGroupMetadata, offsets: Offsets) -> None:
        """TxnOffsetCommit until each partition is taken; a final error of one of them is raised."""
        about = f"the offsets of group {group.group_id} in the transaction of {self.transactional_id}"
        rest = dict(offsets)
        patience = self._patience(self.cluster.settings.default_api_timeout_ms)
        while rest:
            names = self.cluster.metadata.names
            answer = await self.cluster.ask_coordinator(
                group.group_id, commit_offsets(self.cluster, self._transaction, group, rest), first_error,
                kind=GROUP, timeout_ms=patience.left_ms,
            )  # fmt: skip
            codes = answered(names, answer)
            if set(codes) != set(rest):
                raise BadResponse(f"TxnOffsetCommit for {len(rest)} partitions answered {len(codes)}")
            rest = {tp: at for tp, at in rest.items() if codes[tp]}
            for tp in rest:
                if codes[tp] == Errors.UNKNOWN_TOPIC_ID:
                    self.cluster.forget_topic(tp.topic)  # It was made anew; by its name it is found.
            if rest:
                await patience.after(KafkaError(first_error(answer), about=about))

    async def _ask(self, request: Struct, code: Callable[[Any], int], about: str) -> Any:
        """Ask the transaction coordinator until it does what is asked, or says that it will not."""
        patience = self._patience(self.cluster.settings.default_api_timeout_ms)
        while True:
            answer = await self.cluster.ask_coordinator(
                self.transactional_id, self._spoken(request), code, kind=TRANSACTION,
                timeout_ms=patience.left_ms,
            )  # fmt: skip
            if not code(answer):
                return answer
            await patience.after(KafkaError(code(answer), about=about))

    def _spoken(self, request: Struct) -> Request:
        """In the version of this transaction's generation; and what the coordinator's features are."""
        name = type(request).__name__.removesuffix("Request")

        def speak(connection: Connection) -> tuple[Struct, int]:
            self._level = min(connection.features.get(FEATURE, 0), self.transaction_version)
            return request, self._bounded(connection, name)

        return speak

    def _bounded(self, connection: Connection, name: str) -> int:
        version = connection.version_of(BY_NAME[name].key)
        return min(version, _OF_FIRST.get(name, version)) if self._transaction.adds_partitions else version

    def _final(self, error: ClientError, *, abortable: bool | None = None) -> ClientError:
        """What the caller is told. An error that is retriable means that the time was over: call again."""
        return error if error.retriable else self._transaction.refused(error, abortable=abortable)

    # what the producer asks

    def _admit(self) -> None:
        self._transaction.call("send")
        if not self._transaction.adds_partitions:
            self._transaction.started = True

    def _patience(self, timeout_ms: int | None = None) -> Patience:
        settings = self.cluster.settings
        pause_ms = min(_SHORT_PAUSE_MS, settings.retry_backoff_ms)
        return Patience(settings._replace(retry_backoff_ms=pause_ms), timeout_ms or self.delivery_timeout_ms)

    async def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is sent any more in a transaction that cannot be committed. In the first generation the
        coordinator is told of partitions before they are written to."""
        self._transaction.raise_failed()
        if self.state is State.ABORTING:
            raise TransactionFailed(f"the transaction of {self.transactional_id} was aborted")
        fresh = sorted(set(partitions) - self._transaction.enlisted)
        if fresh and self._transaction.adds_partitions:
            await self._enlist(fresh)

    async def _enlist(self, partitions: list[TopicPartition]) -> None:
        """Once: the round is what tries again."""
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
        answer = await self.cluster.ask_coordinator(
            self.transactional_id, self._spoken(request), _partition_error, kind=TRANSACTION
        )
        code = _partition_error(answer)
        if code:
            error = KafkaError(code, about=f"adding partitions to the transaction of {self.transactional_id}")
            raise self._final(error, abortable=code != Errors.INVALID_TXN_STATE)
        self._transaction.added(partitions)

    def _version(self, connection: Connection) -> int:
        return self._bounded(connection, "Produce")

    def _batch(self, tp: TopicPartition, rows: list[Record]) -> bytes:
        return build(
            rows, compression=self.compression, producer_id=self._transaction.producer.producer_id,
            producer_epoch=self._transaction.producer.epoch,
            base_sequence=self._transaction.next_sequence(tp), transactional=True,
        )  # fmt: skip

    def _stands_already(self, code: int) -> bool:
        return code == Errors.DUPLICATE_SEQUENCE_NUMBER

    def _written(self, tp: TopicPartition, count: int) -> None:
        self._transaction.written(tp, count)

    def _failed(self, tp: TopicPartition, rows: list[Waiting], error: BaseException) -> None:
        """Told by the futures and, to those who do not look at them, by the commit."""
        if isinstance(error, ClientError):
            self._transaction.lost(error)
        _tell(rows, error)


def _tell(rows: list[Waiting], error: BaseException) -> None:
    for waiting in rows:
        if not waiting.done.done():
            waiting.done.set_exception(error)
            waiting.done.exception()  # The commit tells it too: nobody has to look at the future.


def _partition_error(answer: AddPartitionsToTxnResponse) -> int:
    """The error that made the others be left out, if there is one."""
    codes = [
        p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
    ]
    failed = [code for code in codes if code]
    return next((c for c in failed if c != Errors.OPERATION_NOT_ATTEMPTED), failed[0] if failed else 0)
