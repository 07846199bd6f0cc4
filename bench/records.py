"""Records: Produce with acks=all, Fetch of a megabyte, and end-to-end latency.

A batch is built once and sent repeatedly, so all batches of a topic have one size, and the records of a Fetch
are counted without decoding. The values are random bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from typing import NamedTuple

from bench.drive import Caller, Repeated, Windows, drive, run
from bench.figures import Figure, at_rank, less, rates
from bench.systems import Lab, Running
from bench.topics import Topic, delete_topic, make_topic, prove
from bench.wire import Asking, BadAnswer, asking, frame_of, read
from konvene.codec.batches import build_simple
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PARTITIONS = 8
MOST_BYTES = 1 << 20
#: A Produce answer of one partition up to its error code; behind it come the offsets.
SAME_IN_PRODUCE = 29
#: In a Fetch v17 answer of one partition: its error code, the high watermark, and the size of its records.
ERROR_AT, HIGH_WATERMARK_AT, SIZE_AT = 37, 39, 68


class Shape(NamedTuple):
    """Size and number of records per batch, the number of producers, and the amount to fetch."""

    records: int
    size: int
    connections: int
    depth: int
    to_fetch: int


SHAPES = {
    1: Shape(1, 100, 8, 5, 50_000),
    100: Shape(100, 100, 8, 5, 2_000_000),
    1000: Shape(1000, 1024, 4, 2, 200_000),
}


def batch_of(shape: Shape) -> bytes:
    noise = random.Random(0)
    pairs = [(None, noise.randbytes(shape.size)) for _ in range(shape.records)]
    return build_simple(pairs, int(time.time() * 1000))


def produce_of(
    topic: Topic, partition: int, batch: bytes, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    topics = (TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)),)
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)


def produced(answer: ProduceResponse) -> bool:
    return all(p.error_code == 0 for t in answer.responses for p in t.partition_responses)


def produce(lab: Lab, count: int) -> list[Figure]:
    """Measure Produce of one batch: eight connections with five requests in flight; for the large batch four
    with two."""
    running, shape = lab.shared(), SHAPES[count]
    topic = make_topic(running, PARTITIONS, segment_bytes="104857600", retention_bytes="209715200")
    batch = batch_of(shape)
    callers: list[Caller] = []
    for i in range(shape.connections):
        request = produce_of(topic, i % PARTITIONS, batch)
        proven = prove(running, request, ProduceResponse, produced)
        callers.append(
            Repeated([frame_of(request)], proven, SAME_IN_PRODUCE, carries=shape.records * shape.size)
        )
    windows = drive(running.port, callers, shape.depth, lab.warmed(running, "produce"), running.cpu_s)
    delete_topic(running, topic)
    return rates(windows)


class Fetching:
    """Fetches a partition from beginning to end, repeatedly."""

    buffer_size = 2 * MOST_BYTES

    def __init__(self, topic: Topic, partition: int, shape: Shape, batch_size: int) -> None:
        self.frames: dict[int, bytes] = {}
        self.topic = topic
        self.partition = partition
        self.shape = shape
        self.batch_size = batch_size
        self.offset = 0

    def __repr__(self) -> str:
        return f"<fetching partition {self.partition} at {self.offset}>"

    def frame(self) -> bytes:
        found = self.frames.get(self.offset)
        if found is None:
            request = fetch_of(self.topic, self.partition, self.offset)
            found = self.frames[self.offset] = frame_of(request)
        return found

    def answered(self, body: memoryview) -> int:
        (code,) = struct.unpack_from(">h", body, ERROR_AT)
        if code:
            raise BadAnswer(f"Fetch was answered with error {code}")
        (high_watermark,) = struct.unpack_from(">q", body, HIGH_WATERMARK_AT)
        size, at = _unsigned_varint(body, SIZE_AT)
        whole = (size - 1) // self.batch_size
        if whole <= 0:
            raise BadAnswer(f"Fetch from {self.offset} brought {size - 1} bytes")
        (first,) = struct.unpack_from(">q", body, at)
        behind = first + whole * self.shape.records
        self.offset = 0 if behind >= high_watermark else behind
        return size - 1


def _unsigned_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fetch_of(topic: Topic, partition: int, offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MOST_BYTES)
    topics = (FetchTopic(topic_id=topic.topic_id, partitions=(wanted,)),)
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=MOST_BYTES, topics=topics)


def fetch(lab: Lab, count: int) -> list[Figure]:
    """Measure Fetch of at most a megabyte, by eight connections, from a topic of such batches."""
    running, shape = lab.shared(), SHAPES[count]
    topic = make_topic(running, PARTITIONS)
    batch = batch_of(shape)
    fill(running, topic, batch, max(1, lab.of(shape.to_fetch) // shape.records // PARTITIONS))
    callers: list[Caller] = [Fetching(topic, i, shape, len(batch)) for i in range(PARTITIONS)]
    windows = drive(running.port, callers, 1, lab.warmed(running, "fetch"), running.cpu_s)
    delete_topic(running, topic)
    return rates(windows)


def fill(running: Running, topic: Topic, batch: bytes, times: int) -> None:
    """Write the batch `times` times to each partition."""
    for partition in range(topic.partitions):
        prove(running, produce_of(topic, partition, batch), ProduceResponse, produced)

    async def write(partition: int) -> None:
        line = await asking(running.port)
        frame = frame_of(produce_of(topic, partition, batch))
        for _ in range(times - 1):
            if not produced(read(ProduceResponse, await line.exchange(frame))):
                raise BadAnswer("a batch was refused")
        line.transport.close()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(topic.partitions):
                group.create_task(write(partition))

    run(all_of_them())


RATE = 200
#: The time stands at the end of the value, behind which there is only the count of headers.
TIME_FROM_END = 9


def latency(lab: Lab) -> list[Figure]:
    """Measure from before a Produce request is built until the Fetch response is read, at 200 records/s."""
    running = lab.shared()
    topic = make_topic(running, 1)
    prove(running, produce_of(topic, 0, batch_of(SHAPES[1])), ProduceResponse, produced)
    found = run(_latency(running, topic, lab.warmed(running, "latency")))
    delete_topic(running, topic)
    return [
        less("p50, ms", (at_rank(f, 0.5) for f in found)),
        less("p99, ms", (at_rank(f, 0.99) for f in found)),
    ]


async def _latency(running: Running, topic: Topic, windows: Windows) -> list[list[float]]:
    seen: list[float] = []
    consumer = asyncio.create_task(_consume(await asking(running.port), topic, seen))
    line = await asking(running.port)
    await _send(line, topic, windows.warm_s)
    found = []
    for _ in range(windows.runs):
        seen.clear()
        await _send(line, topic, windows.seconds)
        await asyncio.sleep(min(0.1, windows.seconds))
        found.append(seen.copy())
    consumer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await consumer
    line.transport.close()
    return found


async def _send(line: Asking, topic: Topic, seconds: float) -> None:
    padding = random.Random(1).randbytes(92)
    began = due = time.perf_counter()
    while due < began + seconds:
        batch = build_simple(
            [(None, padding + struct.pack(">d", time.perf_counter()))], int(time.time() * 1000)
        )
        answer = await line.ask(produce_of(topic, 0, batch), ProduceResponse)
        if not produced(answer):
            raise BadAnswer("a record was refused")
        due = max(due + 1 / RATE, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())


async def _consume(line: Asking, topic: Topic, seen: list[float]) -> None:
    offset = 0
    while True:
        answer = await line.ask(fetch_of(topic, 0, offset), FetchResponse)
        now = time.perf_counter()
        partition = answer.responses[0].partitions[0]
        if partition.error_code:
            raise BadAnswer(f"Fetch was answered with error {partition.error_code}")
        batches = bytes(partition.records or b"")
        while batches:
            base, length = struct.unpack_from(">qi", batches)
            (sent,) = struct.unpack_from(">d", batches, length + 12 - TIME_FROM_END)
            if offset:
                seen.append(1000 * (now - sent))
            offset = base + 1
            batches = batches[length + 12 :]
