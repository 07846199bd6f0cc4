"""Large frames are read into reused buffers, without copies, and with a limit on their total size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop
from tests.broker.running import exchange, running

from konvene.broker.broker import Broker
from konvene.broker.handlers import produce
from konvene.broker.net.frame_buffers import MAX_FREE_BYTES, FrameBufferPool
from konvene.codec.batches import build_simple
from konvene.codec.compile import decode, encode
from konvene.errors import Errors
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from konvene.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

MIB = 1 << 20

Run = Callable[[Coroutine[None, None, None]], None]
RUNS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class FrameReader:
    """A connection that is reading a large frame."""

    def __init__(self) -> None:
        self.paused = False

    def pause_frame(self) -> None:
        self.paused = True

    def resume_frame(self) -> None:
        self.paused = False


def test_released_buffers_are_reused_up_to_a_limit():
    buffers = FrameBufferPool(1 << 30)
    first = buffers.acquire(MIB, MIB)
    assert len(first) >= MIB
    buffers.release(first)
    assert buffers.acquire(MIB - 5, 10) is first
    other = buffers.acquire(MIB, MIB)
    assert other is not first
    large = [buffers.acquire(9 * MIB, 9 * MIB) for _ in range(3)]
    for buffer in large:
        buffers.release(buffer)
    kept = [buffers.acquire(9 * MIB, 9 * MIB) for _ in range(3)]
    assert sum(any(k is b for b in large) for k in kept) == MAX_FREE_BYTES // (9 * MIB)


def test_best_fitting_buffer_is_acquired_and_smallest_is_dropped():
    buffers = FrameBufferPool(1 << 30)
    small, middle, large = bytearray(MIB), bytearray(3 * MIB), bytearray(6 * MIB)
    for buffer in (large, small, middle):
        buffers.release(buffer)
    assert buffers.acquire(2 * MIB, MIB) is middle
    assert buffers.acquire(9 * MIB, MIB) is large
    assert buffers.acquire(9 * MIB, MIB) is small
    assert len(buffers.acquire(9 * MIB, MIB)) == MIB
    for buffer in (small, large, middle, bytearray(7 * MIB)):
        buffers.release(buffer)
    assert buffers.acquire(MIB, MIB) is middle, "the smallest was dropped"


def test_new_buffer_grows_with_the_received_bytes():
    """The size in the frame header alone allocates no memory."""
    buffers = FrameBufferPool(1 << 30)
    need = 100 * MIB
    buffer = buffers.acquire(need, 100_000)
    sizes = [len(buffer)]
    buffer[:3] = b"abc"
    while len(buffer) < need:
        buffer = buffers.grow(buffer, need)
        sizes.append(len(buffer))
        assert buffer[:3] == b"abc"
    assert sizes[0] == 128 * 1024
    assert sizes[-1] == need
    assert all(after == min(4 * before, need) for before, after in pairwise(sizes))


def test_above_the_limit_only_the_oldest_frame_is_read():
    buffers = FrameBufferPool(100)
    old, middle, young = FrameReader(), FrameReader(), FrameReader()
    buffers.received(old, 10)
    buffers.received(middle, 80)
    assert not (old.paused or middle.paused)
    buffers.received(young, 20)
    assert young.paused
    buffers.received(old, 50)
    assert not old.paused, "otherwise no frame would ever complete"
    buffers.received(middle, 5)
    assert middle.paused
    assert buffers.incomplete_bytes == 165
    assert repr(buffers) == "<frame buffers: 3 large frames hold 165 of 100 bytes>"
    buffers.finished(old)
    assert not middle.paused
    assert buffers.incomplete_bytes == 105
    assert young.paused, "still above the limit"
    buffers.finished(middle)
    assert not young.paused
    buffers.finished(young)
    assert buffers.incomplete_bytes == 0


def _frame(key: int, version: int, request: object, correlation_id: int, flexible: bool) -> bytes:
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + b"\0\1c"
    body = head + (b"\0" if flexible else b"") + encode(request, version)  # type: ignore[arg-type]
    return len(body).to_bytes(4, "big") + body


def _produce(correlation_id: int, size: int, count: int = 1) -> bytes:
    batch = build_simple([(b"k%d" % correlation_id, bytes(size))] * count, 1)
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=batch),))
    return _frame(0, 9, ProduceRequest(acks=1, topic_data=(data,)), correlation_id, True)


def _metadata(correlation_id: int, topics: int) -> bytes:
    names = tuple(MetadataRequestTopic(name=f"missing-{i:06d}") for i in range(topics))
    return _frame(3, 9, MetadataRequest(topics=names, allow_auto_topic_creation=False), correlation_id, True)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 20), "big")
    return await reader.readexactly(size)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


async def _topic(broker: Broker) -> None:
    limit = {"max.message.bytes": str(20 * MIB), "segment.bytes": str(64 * MIB)}
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    configs = tuple(CreatableTopicConfig(name=k, value=v) for k, v in limit.items())
    request = CreateTopicsRequest(topics=(topic.replace(configs=configs),))
    await exchange(broker.catalogue.advertised[1], _frame(19, 5, request, 1, True)[4:])


@RUNS
def test_large_and_small_frames_in_one_stream_are_answered_in_order(tmp_path: Path, run: Run) -> None:
    """Frames of 1 byte to 9 MiB, in pieces of any size, on one connection; no buffer is overwritten."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await _topic(broker)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1])
            sizes = [1, 100_000, 70_000, 3 * MIB, 10, 9 * MIB, 65_536, 200_000, 5]
            stream = b"".join(_produce(i, size) for i, size in enumerate(sizes)) + _metadata(99, 9000)
            sending = asyncio.create_task(_send_in_pieces(writer, stream))
            for i in range(len(sizes)):
                answer = await _answer(reader)
                assert int.from_bytes(answer[:4], "big") == i
                produced = decode(ProduceResponse, 9, answer, 5).responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (Errors.NONE, i)
            answer = await _answer(reader)
            assert len(decode(MetadataResponse, 9, answer, 5).topics) == 9000
            await sending
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            values = [(len(view), header.base_offset) for header, view in partition.batches()]
            assert values == [(len(build_simple([(b"k0", bytes(s))], 1)), i) for i, s in enumerate(sizes)]
            assert broker.network.frame_buffers.incomplete_bytes == 0
            writer.close()

    run(main())


async def _send_in_pieces(writer: asyncio.StreamWriter, stream: bytes) -> None:
    at, step = 0, 1
    while at < len(stream):
        writer.write(stream[at : at + step])
        await writer.drain()
        at += step
        step = step * 3 % 1_000_003 + 1


@RUNS
def test_incomplete_frames_delay_others_only_above_the_limit(tmp_path: Path, run: Run) -> None:
    """Above `queued.max.request.bytes` only the oldest frame is read, until a connection closes."""
    settings = {"socket.request.max.bytes": str(8 * MIB), "queued.max.request.bytes": str(8 * MIB)}

    async def main() -> None:
        async with running(tmp_path, settings) as broker:
            await _topic(broker)
            port = broker.catalogue.advertised[1]
            stuck = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in stuck:
                writer.write(_produce(1, 6 * MIB)[: 5 * MIB])
            await _until(lambda: broker.network.frame_buffers.incomplete_bytes >= 8 * MIB)
            await asyncio.sleep(0.1)
            assert broker.network.frame_buffers.incomplete_bytes < 16 * MIB
            small = await asyncio.open_connection("127.0.0.1", port)
            small[1].write(_produce(7, 100))
            assert (await _answer(small[0]))[:4] == (7).to_bytes(4, "big"), (
                "small frames are served meanwhile"
            )
            late = await asyncio.open_connection("127.0.0.1", port)
            late[1].write(_produce(8, 3 * MIB))
            for _, writer in stuck:
                writer.transport.abort()
            assert (await _answer(late[0]))[:4] == (8).to_bytes(4, "big")
            await _until(lambda: not broker.network.frame_buffers.incomplete_bytes)
            small[1].close()
            late[1].close()

    run(main())


def test_a_request_for_many_partitions_keeps_its_buffer_while_others_run(tmp_path: Path) -> None:
    """It is appended in slices, while frames of other connections are read into other buffers."""
    count = 100

    async def main() -> None:
        async with running(tmp_path) as broker:
            topic = CreatableTopic(name="many", num_partitions=count, replication_factor=1)
            request = CreateTopicsRequest(topics=(topic,))
            await exchange(broker.catalogue.advertised[1], _frame(19, 5, request, 1, True)[4:])
            await _topic(broker)
            port = broker.catalogue.advertised[1]
            batches = {i: build_simple([(b"%d" % i, bytes([i]) * 20_000)], 1) for i in range(count)}
            data = TopicProduceData(
                name="many",
                partition_data=tuple(PartitionProduceData(index=i, records=b) for i, b in batches.items()),
            )
            produce.SLICE_S = 0  # One iteration of the loop per partition.
            many = await asyncio.open_connection("127.0.0.1", port)
            other = await asyncio.open_connection("127.0.0.1", port)
            many[1].write(_frame(0, 9, ProduceRequest(acks=-1, topic_data=(data,)), 5, True))
            for i in range(50, 53):
                many[1].write(_produce(i, 300_000))
            for i in range(30):
                other[1].write(_produce(i, 300_000))
            for i in range(30):
                assert (await _answer(other[0]))[:4] == i.to_bytes(4, "big")
            answer = decode(ProduceResponse, 9, await _answer(many[0]), 5)
            for i in range(50, 53):
                assert (await _answer(many[0]))[:4] == i.to_bytes(4, "big")
            partitions = answer.responses[0].partition_responses
            assert [(p.index, p.error_code, p.base_offset) for p in partitions] == [
                (i, 0, 0) for i in range(count)
            ]
            for i in range(count):
                partition = broker.partitions.get("many", i)
                assert partition is not None
                ((_, view),) = partition.batches()
                assert bytes(view[21:]) == batches[i][21:]
            assert broker.network.frame_buffers.incomplete_bytes == 0
            many[1].close()
            other[1].close()

    before = produce.SLICE_S
    try:
        asyncio.run(main())
    finally:
        produce.SLICE_S = before
