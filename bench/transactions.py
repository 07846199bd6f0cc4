"""Transactions: throughput, and the time until committed records can be read.

A transaction is one step of consume-transform-produce: one record to one partition, one offset of one group,
and the commit. 64 producers, each with a connection, a transactional id and a group of its own, run
transactions in a closed loop. Clients with transaction version 1 send AddPartitionsToTxn and AddOffsetsToTxn,
so a transaction has five requests; with version 2 (KIP-890) they do not, and receive a new epoch with each
EndTxn: three requests.

EndTxn is answered before the markers are written. A request of the next transaction that comes too early is
answered CONCURRENT_TRANSACTIONS and retried, as by Java's client.

The load generator uses an event loop, since each request differs: epochs, sequence numbers, checksums. It
takes a good part of a CPU, so the rate per wall-clock second is less meaningful than that per CPU second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from bench.drive import Window, Windows, run
from bench.figures import Figure, at_rank, less
from bench.records import fetch_of, produce_of
from bench.systems import NO_SYNC, TICK_S, Lab, Running
from bench.topics import Topic, delete_topic, make_topic, new_name, prove, wait_for_coordinator
from bench.wire import Asking, BadAnswer, Response, asking
from konvene.codec.batches import batches, build_simple
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse
from konvene.messages.fetch import FetchResponse
from konvene.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.messages.produce import ProduceResponse
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

PRODUCERS = 64
PARTITIONS = 8
VALUE = bytes(100)
TRANSACTIONS = 1
"""Key type of transactional ids in FindCoordinator."""
READ_COMMITTED = 1

RETRY_S = 0.02
#: The previous transaction is being completed, or the coordinator is not available yet.
RETRIABLE = (
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
)


class TransactionProtocol(NamedTuple):
    """A transaction protocol: whether clients announce partitions and groups, and the versions of their
    requests."""

    announces_writes: bool
    produce: int
    commit: int
    end: int


PROTOCOLS = {1: TransactionProtocol(True, 11, 4, 4), 2: TransactionProtocol(False, 13, 5, 5)}


class Producer:
    """A transactional producer with a connection of its own."""

    def __init__(
        self, connection: Asking, topic: Topic, partition: int, protocol: TransactionProtocol
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.partition = partition
        self.protocol = protocol
        self.transactional_id = new_name("transaction")
        self.group = new_name("group")
        self.producer_id = self.epoch = -1
        self.sequence = self.offset = 0

    def __repr__(self) -> str:
        return f"<{self.transactional_id}, producer {self.producer_id} in epoch {self.epoch}>"

    async def begin(self) -> None:
        """Initialise the producer: obtain its id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000, producer_epoch=-1
        )
        response = await self._until_accepted(
            request, InitProducerIdResponse, None, lambda answer: answer.error_code
        )
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    async def transact(self) -> None:
        """Run one complete transaction."""
        await self.write()
        await self.commit_offset()
        await self.end()

    async def write(self) -> None:
        """Produce one record."""
        if self.protocol.announces_writes:
            topic = AddPartitionsToTxnTopic(name=self.topic.name, partitions=(self.partition,))
            announced = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=(topic,),
            )
            await self._until_accepted(announced, AddPartitionsToTxnResponse, None, _of_partitions)
        batch = build_simple(
            [(None, VALUE)],
            int(time.time() * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce_of(self.topic, self.partition, batch, self.transactional_id)
        await self._until_accepted(request, ProduceResponse, self.protocol.produce, _of_produce)
        self.sequence += 1

    async def commit_offset(self) -> None:
        """Commit one offset of the group."""
        if self.protocol.announces_writes:
            announced = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group,
            )
            await self._until_accepted(announced, AddOffsetsToTxnResponse, None, lambda a: a.error_code)
        self.offset += 1
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=self.offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=self.topic.name, partitions=(partition,)),),
        )
        await self._until_accepted(request, TxnOffsetCommitResponse, self.protocol.commit, _of_commit)

    async def end(self) -> None:
        """Commit the transaction. With transaction version 2 the response has the epoch of the next one."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        response = await self._until_accepted(
            request, EndTxnResponse, self.protocol.end, lambda a: a.error_code
        )
        if not self.protocol.announces_writes:
            self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0

    async def _until_accepted(
        self,
        request: Struct,
        kind: type[Response],
        version: int | None,
        code: Callable[[Response], int],
    ) -> Response:
        while True:
            response = await self.connection.ask(request, kind, version)
            error = code(response)
            if error == Errors.NONE:
                return response
            if error not in RETRIABLE:
                raise BadAnswer(f"{type(request).__name__} was answered {Errors(error).name}")
            await asyncio.sleep(RETRY_S)


def _of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def _of_produce(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def _of_commit(answer: TxnOffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def transactions(lab: Lab, generation: int, sync: bool = True) -> list[Figure]:
    """Measure the rate of completed transactions of many concurrent producers."""
    running = lab.shared(None if sync else NO_SYNC)
    topic = _prepare_topic(running)
    windows = lab.warmed(running, f"transactions-{generation}")
    seen = run(_run_producers(running, topic, PROTOCOLS[generation], lab.of(PRODUCERS), windows))
    delete_topic(running, topic)
    return [
        Figure("transactions per CPU s", tuple(w.requests / max(w.cpu_s, TICK_S) for w in seen)),
        Figure("transactions per s", tuple(w.requests / w.wall_s for w in seen)),
    ]


def _prepare_topic(running: Running) -> Topic:
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "transactions")
    request = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=("transactions",))
    prove(running, request, FindCoordinatorResponse, lambda answer: answer.coordinators[0].error_code == 0)
    return topic


async def _run_producers(
    running: Running, topic: Topic, protocol: TransactionProtocol, count: int, windows: Windows
) -> list[Window]:
    done = 0

    async def run_transactions(producer: Producer) -> None:
        nonlocal done
        while True:
            await producer.transact()
            done += 1

    producers = [
        Producer(await asking(running.port), topic, i % topic.partitions, protocol) for i in range(count)
    ]
    for producer in producers:
        await producer.begin()
        await producer.transact()
    seen: list[Window] = []

    async def measure() -> None:
        await asyncio.sleep(windows.warm_s)
        for _ in range(windows.runs):
            before, cpu, started = done, running.cpu_s(), time.perf_counter()
            await asyncio.sleep(windows.seconds)
            wall = time.perf_counter() - started
            seen.append(Window(done - before, 0, wall, running.cpu_s() - cpu))

    await _run_while([run_transactions(producer) for producer in producers], measure())
    for producer in producers:
        producer.connection.transport.close()
    return seen


async def _run_while(others: Sequence[Coroutine[Any, Any, None]], main: Awaitable[None]) -> None:
    """Await `main` while the other coroutines run; if one of them fails, raise its error."""
    tasks = [asyncio.ensure_future(other) for other in others]
    main_task = asyncio.ensure_future(main)
    await asyncio.wait([main_task, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (main_task, *tasks):
        if task.done():
            task.result()
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)


RATE = 100


class Times(NamedTuple):
    """For each transaction: when EndTxn was sent, when it was answered, and when the record was read."""

    sent: list[float]
    answered: list[float]
    read: list[float]


def visibility(lab: Lab) -> list[Figure]:
    """Measure from sending EndTxn until a pending read_committed Fetch returns the record, at 100
    transactions/s of one producer with transaction version 2."""
    running = lab.shared()
    topic = _prepare_topic(running)
    times = Times([], [], [])
    cuts = run(_run_visibility(running, topic, lab.warmed(running, "visibility"), times))
    delete_topic(running, topic)
    windows = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    read = [_ms(times.sent[w], times.read[w]) for w in windows]
    answered = [_ms(times.sent[w], times.answered[w]) for w in windows]
    return [
        less("read, p50, ms", (at_rank(found, 0.5) for found in read)),
        less("read, p99, ms", (at_rank(found, 0.99) for found in read)),
        less("EndTxn answered, p50, ms", (at_rank(found, 0.5) for found in answered)),
    ]


def _ms(started: Sequence[float], ended: Sequence[float]) -> list[float]:
    return [1000 * (b - a) for a, b in zip(started, ended, strict=True)]


async def _run_visibility(running: Running, topic: Topic, windows: Windows, times: Times) -> list[int]:
    """Run transactions and fill in `times`; return the index of each window's first one, and the end."""
    cuts: list[int] = []
    producer = Producer(await asking(running.port), topic, 0, PROTOCOLS[2])
    reader = await asking(running.port)
    seen: asyncio.Queue[float] = asyncio.Queue()

    async def produce() -> None:
        await producer.begin()
        await _run_paced(producer, times, seen, windows.warm_s)
        for _ in range(windows.runs):
            cuts.append(len(times.sent))
            await _run_paced(producer, times, seen, windows.seconds)
        cuts.append(len(times.sent))

    await _run_while([_read(reader, topic, seen)], produce())
    for connection in (producer.connection, reader):
        connection.transport.close()
    return cuts


async def _run_paced(producer: Producer, times: Times, seen: asyncio.Queue[float], seconds: float) -> None:
    started = due = time.perf_counter()
    while due < started + seconds:
        await producer.write()
        await producer.commit_offset()
        times.sent.append(time.perf_counter())
        await producer.end()
        times.answered.append(time.perf_counter())
        times.read.append(await seen.get())
        due = max(due + 1 / RATE, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())


async def _read(connection: Asking, topic: Topic, seen: asyncio.Queue[float]) -> None:
    """Record when each record is read, skipping control batches."""
    offset = 0
    while True:
        request = fetch_of(topic, 0, offset).replace(isolation_level=READ_COMMITTED)
        answer = await connection.ask(request, FetchResponse)
        now = time.perf_counter()
        partition = answer.responses[0].partitions[0]
        if partition.error_code:
            raise BadAnswer(f"Fetch was answered {Errors(partition.error_code).name}")
        for header, _ in batches(partition.records or b""):
            offset = header.base_offset + header.last_offset_delta + 1
            if not header.is_control:
                seen.put_nowait(now)
