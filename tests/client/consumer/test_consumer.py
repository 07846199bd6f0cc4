"""Consumer positions: where they start, how they advance, and when they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import ScriptedBroker

from konvene.client.consumer.consumer import Consumer
from konvene.client.errors import CorruptRecord, KafkaError, Misconfigured
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.codec.batches import build_simple
from konvene.errors import Errors
from konvene.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)
TP = TopicPartition("t", 0)
COUNT = 10


def fetched(request: Any) -> FetchResponse:
    """Answer a Fetch of a partition with the records 0 to 9 in one batch."""
    (t,) = request.topics
    at = t.partitions[0].fetch_offset
    if at > COUNT:
        row = PartitionData(error_code=Errors.OFFSET_OUT_OF_RANGE)
    else:
        pairs = [(None, b"%d" % i) for i in range(COUNT)]
        row = PartitionData(records=build_simple(pairs, 1) if at < COUNT else b"", high_watermark=COUNT)
    return FetchResponse(
        responses=(FetchableTopicResponse(topic=t.topic, topic_id=t.topic_id, partitions=(row,)),)
    )


def ends(request: Any) -> ListOffsetsResponse:
    at = {-2: 0, -1: COUNT}.get(request.topics[0].partitions[0].timestamp, -1)
    row = ListOffsetsPartitionResponse(offset=at)
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))


def committed(offset: int) -> OffsetFetchResponse:
    topic = OffsetFetchResponseTopics(
        name="t", partitions=(OffsetFetchResponsePartitions(committed_offset=offset, metadata=""),)
    )
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,)),))


COMMITTED = OffsetCommitResponse(
    topics=(OffsetCommitResponseTopic(name="t", partitions=(OffsetCommitResponsePartition(),)),)
)


def consume(
    job: Callable[[Consumer], Awaitable[None]], group: str | None = None, at: int = -1, **options: Any
) -> ScriptedBroker:
    with ScriptedBroker(
        Fetch=fetched, ListOffsets=ends, OffsetFetch=committed(at), OffsetCommit=COMMITTED
    ) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=1)]

        async def whole() -> None:
            async with Cluster(broker.address, QUICK) as cluster:
                consumer = Consumer(cluster, group, **options)
                consumer.assign([TP])
                await job(consumer)

        asyncio.run(whole())
    return broker


async def values(consumer: Consumer) -> list[int]:
    return [int(r.value or b"-1") for r in await consumer.poll(10)]


def commits(broker: ScriptedBroker) -> list[int]:
    sent = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "OffsetCommit"]
    return [p.committed_offset for r in sent for t in r.topics for p in t.partitions]


def test_positions_follow_returned_records_and_one_fetch_serves_many_polls() -> None:
    async def job(consumer: Consumer) -> None:
        assert await values(consumer) == [0, 1, 2, 3]
        assert consumer.positions == {TP: 4}
        assert await values(consumer) == [4, 5, 6, 7]
        assert await values(consumer) == [8, 9]
        assert await values(consumer) == []
        assert consumer.positions == {TP: 10}

    broker = consume(job, auto_offset_reset="earliest", max_poll_records=4)
    assert broker.apis.count("Fetch") == 2


def test_a_seek_drops_buffered_records() -> None:
    async def job(consumer: Consumer) -> None:
        await values(consumer)
        consumer.seek(TP, 8)
        assert await values(consumer) == [8, 9]
        await consumer.seek_to(-2)
        assert await values(consumer) == [0, 1, 2, 3]
        await consumer.seek_to(99_999)  # Later than any record: the end.
        assert consumer.positions == {TP: COUNT}

    consume(job, auto_offset_reset="earliest", max_poll_records=4)


def test_reading_starts_at_the_committed_offset_and_close_commits() -> None:
    async def job(consumer: Consumer) -> None:
        assert await values(consumer) == [7, 8, 9]
        await consumer.close()

    assert commits(consume(job, "g", at=7)) == [10]


def test_auto_offset_reset_applies_without_a_committed_offset() -> None:
    async def first(consumer: Consumer) -> None:
        assert (await values(consumer))[0] == 0

    async def last(consumer: Consumer) -> None:
        assert await values(consumer) == []

    async def nowhere(consumer: Consumer) -> None:
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            await consumer.poll(10)

    consume(first, "g", auto_offset_reset="earliest")
    consume(last, "g", auto_offset_reset="latest")
    consume(nowhere, "g", auto_offset_reset="none")


def test_an_offset_that_is_out_of_range_is_reset() -> None:
    async def job(consumer: Consumer) -> None:
        consumer.seek(TP, 99)
        assert await values(consumer) == []
        assert (await values(consumer))[0] == 0

    consume(job, auto_offset_reset="earliest")


def test_without_auto_commit_only_explicit_offsets_are_committed() -> None:
    async def job(consumer: Consumer) -> None:
        await values(consumer)
        await consumer.commit({TP: 3})
        await consumer.commit()
        await values(consumer)
        await consumer.close()

    assert commits(consume(job, "g", at=0, auto_commit=False, max_poll_records=4)) == [3, 4]


def test_group_methods_raise_without_a_group() -> None:
    consumer = Consumer(Cluster("h:1"))
    with pytest.raises(Misconfigured, match="subscribing needs a group"):
        consumer.subscribe(["t"])
    with pytest.raises(Misconfigured, match=r"auto\.offset\.reset is earliest"):
        Consumer(Cluster("h:1"), auto_offset_reset="first")


def test_a_damaged_partition_does_not_stop_the_others() -> None:
    """Its error is raised, the next call returns the records of the other partition."""

    def answer(request: Any) -> FetchResponse:
        (t,) = request.topics
        rows = tuple(
            PartitionData(partition_index=1, records=build_simple([(None, b"5")], 1), high_watermark=1)
            if p.partition == 1
            else PartitionData(partition_index=0, error_code=Errors.CORRUPT_MESSAGE, records=b"")
            for p in t.partitions
        )
        return FetchResponse(
            responses=(FetchableTopicResponse(topic=t.topic, topic_id=t.topic_id, partitions=rows),)
        )

    with ScriptedBroker(Fetch=answer) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2)]

        async def whole() -> None:
            async with Cluster(broker.address, QUICK) as cluster:
                consumer = Consumer(cluster)
                consumer.assign([TP, TopicPartition("t", 1)])
                for tp in consumer.assignment:
                    consumer.seek(tp, 0)
                with pytest.raises(CorruptRecord, match="reading t-0 at offset 0: CORRUPT_MESSAGE"):
                    await consumer.poll(10)
                assert await values(consumer) == [5]

        asyncio.run(whole())
