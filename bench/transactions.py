"""Transactions: how many a broker can end, and how soon what they wrote can be read.

A transaction is what consume-transform-produce does once: one record to one partition, one offset of one
group, and the end. 64 producers, each with a connection, a transactional id and a group of its own, do it as
fast as they are answered. There are two ways to speak. A client of the first generation announces what it
will write (AddPartitionsToTxn, AddOffsetsToTxn), so that a transaction is five requests; one of the second
does not, and is told a new epoch at each end: three requests.

The end of a transaction is answered before its markers are written. Who begins the next one too soon is told
CONCURRENT_TRANSACTIONS, and asks again after a while, as Java's client does.

The load comes from an event loop, for each request is another: epochs, sequence numbers, checksums. It
takes a good part of a CPU, so the rate per second of the wall clock says less than that per CPU second.
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
"""The key type of transactional ids in FindCoordinator."""
READ_COMMITTED = 1

AGAIN_S = 0.02
#: The last transaction is being ended, or the coordinator is not there yet.
LATER = (
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
)


class Generation(NamedTuple):
    """How clients of a generation speak: whether they announce what they write, and their versions."""

    announces: bool
    produce: int
    commit: int
    end: int


GENERATIONS = {1: Generation(True, 11, 4, 4), 2: Generation(False, 13, 5, 5)}


class Producer:
    """A transactional producer with a connection of its own."""

    def __init__(self, line: Asking, topic: Topic, partition: int, speaks: Generation) -> None:
        self.line = line
        self.topic = topic
        self.partition = partition
        self.speaks = speaks
        self.transactional_id = new_name("transaction")
        self.group = new_name("group")
        self.producer_id = self.epoch = -1
        self.sequence = self.offset = 0

    def __repr__(self) -> str:
        return f"<{self.transactional_id}, producer {self.producer_id} in epoch {self.epoch}>"

    async def begin(self) -> None:
        """Be told an id and an epoch."""
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000, producer_epoch=-1
        )
        told = await self._until_accepted(
            asked, InitProducerIdResponse, None, lambda answer: answer.error_code
        )
        self.producer_id, self.epoch = told.producer_id, told.producer_epoch

    async def transact(self) -> None:
        """One whole transaction."""
        await self.write()
        await self.commit_offset()
        await self.end()

    async def write(self) -> None:
        """One record."""
        if self.speaks.announces:
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
        asked = produce_of(self.topic, self.partition, batch, self.transactional_id)
        await self._until_accepted(asked, ProduceResponse, self.speaks.produce, _of_produce)
        self.sequence += 1

    async def commit_offset(self) -> None:
        """One offset of the group."""
        if self.speaks.announces:
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
        asked = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=self.topic.name, partitions=(partition,)),),
        )
        await self._until_accepted(asked, TxnOffsetCommitResponse, self.speaks.commit, _of_commit)

    async def end(self) -> None:
        """Commit. In the second generation the next transaction has an epoch of its own."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        told = await self._until_accepted(asked, EndTxnResponse, self.speaks.end, lambda a: a.error_code)
        if not self.speaks.announces:
            self.producer_id, self.epoch, self.sequence = told.producer_id, told.producer_epoch, 0

    async def _until_accepted(
        self,
        request: Struct,
        kind: type[Response],
        version: int | None,
        code: Callable[[Response], int],
    ) -> Response:
        while True:
            answer = await self.line.ask(request, kind, version)
            told = code(answer)
            if told == Errors.NONE:
                return answer
            if told not in LATER:
                raise BadAnswer(f"{type(request).__name__} was answered {Errors(told).name}")
            await asyncio.sleep(AGAIN_S)


def _of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def _of_produce(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def _of_commit(answer: TxnOffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def transactions(lab: Lab, generation: int, sync: bool = True) -> list[Figure]:
    """Transactions of many producers at once; their ends, not their requests, are what is counted."""
    running = lab.shared(None if sync else NO_SYNC)
    topic = _made_ready(running)
    windows = lab.warmed(running, f"transactions-{generation}")
    seen = run(_driven(running, topic, GENERATIONS[generation], lab.of(PRODUCERS), windows))
    delete_topic(running, topic)
    return [
        Figure("transactions per CPU s", tuple(w.requests / max(w.cpu_s, TICK_S) for w in seen)),
        Figure("transactions per s", tuple(w.requests / w.wall_s for w in seen)),
    ]


def _made_ready(running: Running) -> Topic:
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "transactions")
    request = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=("transactions",))
    prove(running, request, FindCoordinatorResponse, lambda answer: answer.coordinators[0].error_code == 0)
    return topic


async def _driven(
    running: Running, topic: Topic, speaks: Generation, count: int, windows: Windows
) -> list[Window]:
    done = 0

    async def go_on(producer: Producer) -> None:
        nonlocal done
        while True:
            await producer.transact()
            done += 1

    producers = [
        Producer(await asking(running.port), topic, i % topic.partitions, speaks) for i in range(count)
    ]
    for producer in producers:
        await producer.begin()
        await producer.transact()
    seen: list[Window] = []

    async def look() -> None:
        await asyncio.sleep(windows.warm_s)
        for _ in range(windows.runs):
            before, cpu, began = done, running.cpu_s(), time.perf_counter()
            await asyncio.sleep(windows.seconds)
            wall = time.perf_counter() - began
            seen.append(Window(done - before, 0, wall, running.cpu_s() - cpu))

    await _while([go_on(producer) for producer in producers], look())
    for producer in producers:
        producer.line.transport.close()
    return seen


async def _while(others: Sequence[Coroutine[Any, Any, None]], story: Awaitable[None]) -> None:
    """Await the story while the others go on for ever; if one of them fails, so does this."""
    tasks = [asyncio.ensure_future(other) for other in others]
    told = asyncio.ensure_future(story)
    await asyncio.wait([told, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (told, *tasks):
        if task.done():
            task.result()
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)


RATE = 100


class Times(NamedTuple):
    """Of each transaction in its turn: when it was asked to end, when that was answered, when its record was
    read."""

    asked: list[float]
    answered: list[float]
    read: list[float]


def visibility(lab: Lab) -> list[Figure]:
    """From before EndTxn is sent until a Fetch that waits, reading only what is committed, has the record; at
    100 transactions/s of one producer of the second generation."""
    running = lab.shared()
    topic = _made_ready(running)
    times = Times([], [], [])
    cuts = run(_watched(running, topic, lab.warmed(running, "visibility"), times))
    delete_topic(running, topic)
    windows = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    read = [_ms(times.asked[w], times.read[w]) for w in windows]
    answered = [_ms(times.asked[w], times.answered[w]) for w in windows]
    return [
        less("read, p50, ms", (at_rank(found, 0.5) for found in read)),
        less("read, p99, ms", (at_rank(found, 0.99) for found in read)),
        less("EndTxn answered, p50, ms", (at_rank(found, 0.5) for found in answered)),
    ]


def _ms(began: Sequence[float], ended: Sequence[float]) -> list[float]:
    return [1000 * (b - a) for a, b in zip(began, ended, strict=True)]


async def _watched(running: Running, topic: Topic, windows: Windows, times: Times) -> list[int]:
    """Fill in the times; where each window begins in them, and where the last one ends."""
    cuts: list[int] = []
    producer = Producer(await asking(running.port), topic, 0, GENERATIONS[2])
    reader = await asking(running.port)
    seen: asyncio.Queue[float] = asyncio.Queue()

    async def produce() -> None:
        await producer.begin()
        await _paced(producer, times, seen, windows.warm_s)
        for _ in range(windows.runs):
            cuts.append(len(times.asked))
            await _paced(producer, times, seen, windows.seconds)
        cuts.append(len(times.asked))

    await _while([_read(reader, topic, seen)], produce())
    for line in (producer.line, reader):
        line.transport.close()
    return cuts


async def _paced(producer: Producer, times: Times, seen: asyncio.Queue[float], seconds: float) -> None:
    began = due = time.perf_counter()
    while due < began + seconds:
        await producer.write()
        await producer.commit_offset()
        times.asked.append(time.perf_counter())
        await producer.end()
        times.answered.append(time.perf_counter())
        times.read.append(await seen.get())
        due = max(due + 1 / RATE, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())


async def _read(line: Asking, topic: Topic, seen: asyncio.Queue[float]) -> None:
    """Note when each record comes; markers come between them."""
    offset = 0
    while True:
        request = fetch_of(topic, 0, offset).replace(isolation_level=READ_COMMITTED)
        answer = await line.ask(request, FetchResponse)
        now = time.perf_counter()
        partition = answer.responses[0].partitions[0]
        if partition.error_code:
            raise BadAnswer(f"Fetch was answered {Errors(partition.error_code).name}")
        for header, _ in batches(partition.records or b""):
            offset = header.base_offset + header.last_offset_delta + 1
            if not header.is_control:
                seen.put_nowait(now)
