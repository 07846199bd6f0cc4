"""Kafka's flush configs limit how many records may be unsynced, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.running import running

from konvene.broker.handlers import produce
from konvene.broker.services import bind
from konvene.broker.storage.partitions import Partition
from konvene.codec.batches import build_simple
from konvene.codec.compile import encode
from konvene.configs import BrokerConfig
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.runtime.coordinator import RequestContext


def run(
    path: Path,
    settings: dict[str, str],
    configs: dict[str, str],
    scenario: Callable[[BrokerClient, Partition], Awaitable[None]],
) -> None:
    async def main() -> None:
        async with running(path, settings) as broker:
            client = BrokerClient(broker)
            topic_configs = tuple(
                CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            )
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=topic_configs)
            await client.send(CreateTopicsRequest(topics=(topic,)))
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            await scenario(client, partition)

    asyncio.run(main())


async def write(client: BrokerClient, partition: Partition, acks: int, count: int = 1) -> None:
    records = build_simple([(None, b"v")] * count, 1)
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=records),))
    before = partition.end_offset
    await client.send(ProduceRequest(acks=acks, topic_data=(data,)), 9)
    assert partition.end_offset == before + count


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("where", ["topic", "broker"])
def test_the_log_is_synced_after_a_number_of_records(tmp_path: Path, acks: int, where: str) -> None:
    """By `flush.messages` or `log.flush.interval.messages`: before the response, with any acks."""

    async def scenario(client: BrokerClient, partition: Partition) -> None:
        await write(client, partition, acks, 2)
        assert partition.synced_offset == 0
        await write(client, partition, acks)
        assert partition.synced_offset == 3
        await write(client, partition, acks, 2)
        assert partition.synced_offset == 3
        await write(client, partition, acks, 5)
        assert partition.synced_offset == 10

    settings = {"log.flush.interval.messages": "3"} if where == "broker" else {}
    run(tmp_path, settings, {"flush.messages": "3"} if where == "topic" else {}, scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_topics_are_synced_before_each_response(tmp_path: Path, acks: int) -> None:
    """With `konvene.log.fsync.topics`."""

    async def scenario(client: BrokerClient, partition: Partition) -> None:
        for count in range(1, 4):
            await write(client, partition, acks)
            assert partition.synced_offset == count

    run(tmp_path, {"konvene.log.fsync.topics": "true"}, {}, scenario)


def test_records_without_acks_are_flushed_as_well(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient, partition: Partition) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.broker.catalogue.advertised[1])
        records = build_simple([(None, b"v")], 1)
        data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=records),))
        body = b"\0\0\0\x09\0\0\0\1\0\1c\0" + encode(ProduceRequest(acks=0, topic_data=(data,)), 9)
        writer.write((len(body).to_bytes(4, "big") + body) * 3)
        async with asyncio.timeout(10):
            while partition.synced_offset < 3:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.01)
        writer.close()
        assert await reader.read() == b""

    run(tmp_path, {}, {"flush.messages": "1"}, scenario)


def test_the_log_is_flushed_after_its_flush_interval(tmp_path: Path) -> None:
    """`flush.ms` is checked every `log.flush.scheduler.interval.ms`; a log that is not due is not flushed."""

    async def scenario(client: BrokerClient, partition: Partition) -> None:
        await write(client, partition, 1)
        async with asyncio.timeout(10):
            while partition.synced_offset < 1:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.01)
        assert not partition.is_due(partition.synced_ms + 1_000_000)
        client.write("t", b"v")
        assert not partition.is_due(partition.synced_ms + 19)
        assert partition.is_due(partition.synced_ms + 20)

    run(tmp_path, {"log.flush.scheduler.interval.ms": "20"}, {"flush.ms": "20"}, scenario)


def test_flush_limits_are_unlimited_by_default() -> None:
    config, _ = BrokerConfig.load()
    assert config["log.flush.scheduler.interval.ms"] == config["log.flush.interval.messages"] == 2**63 - 1


def test_unsynced_records_are_not_readable_if_producers_wait_for_the_sync(tmp_path: Path) -> None:
    """With `konvene.log.fsync.topics`: a power failure could otherwise remove records that were consumed.

    The consumer would then skip the records that are acknowledged at the same offsets later.
    """

    async def scenario(client: BrokerClient, partition: Partition) -> None:
        partition.append([(None, b"v")], 1_000)
        assert (partition.end_offset, partition.high_watermark) == (1, 0)
        wanted = ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(timestamp=-1),))
        (latest,) = (await client.send(ListOffsetsRequest(topics=(wanted,)))).topics[0].partitions
        assert latest.offset == 0
        assert await read(client, max_wait_ms=0) == (0, b"")
        waiting = asyncio.create_task(read(client, max_wait_ms=10_000))
        async with asyncio.timeout(10):
            while not partition.waiting:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.01)
        await partition.sync()
        high_watermark, records = await waiting
        assert high_watermark == 1
        assert records

    run(tmp_path, {"konvene.log.fsync.topics": "true"}, {}, scenario)


@pytest.mark.parametrize(("count", "before_start"), [(3, True), (3, False), (20, False)])
def test_records_of_a_disconnected_producer_become_readable(
    tmp_path: Path, count: int, before_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended records are synced even if the Produce request was cancelled."""
    monkeypatch.setattr(produce, "SLICE_S", -1.0)

    async def scenario(client: BrokerClient, partition: Partition) -> None:
        await client.topic("u", count)
        broker = client.broker
        rows = tuple(
            PartitionProduceData(index=index, records=build_simple([(None, b"v")], 1))
            for index in range(count)
        )
        request = ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="u", partition_data=rows),))
        call = RequestContext(9)
        handling = bind(produce.handle, broker.services)(request, call)
        if not before_start:
            task = asyncio.ensure_future(handling)
            await asyncio.sleep(0)
            task.cancel()
        else:
            handling.close()
        partitions = [broker.partitions.get("u", index) for index in range(count)]
        written = [p for p in partitions if p is not None and p.end_offset]
        assert written
        async with asyncio.timeout(10):
            while any(p.high_watermark < 1 for p in written):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.01)

    run(tmp_path, {"konvene.log.fsync.topics": "true"}, {}, scenario)


async def read(client: BrokerClient, max_wait_ms: int) -> tuple[int, bytes]:
    """Fetch partition 0 from offset 0; return its high watermark and records."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = FetchTopic(topic="t", partitions=(wanted,))
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1_000, topics=(topic,))
    (fetched,) = (await client.send(request, 12)).responses[0].partitions
    return fetched.high_watermark, bytes(fetched.records or b"")
