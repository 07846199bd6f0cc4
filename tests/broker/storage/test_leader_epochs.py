"""Each start of the broker begins a leader epoch, by which clients detect records lost in a power failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.running import running

from konvene.codec.batches import batches
from konvene.errors import Errors
from konvene.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Scenario = Callable[[BrokerClient], Awaitable[None]]


def run_broker(path: Path, *scenarios: Scenario) -> None:
    """Start the broker once for each scenario, on the same data directory."""

    async def main() -> None:
        for scenario in scenarios:
            async with running(path) as broker:
                await scenario(BrokerClient(broker))

    asyncio.run(main())


async def leader_epochs(client: BrokerClient, topic: str) -> set[int]:
    """Return the leader epochs of a topic in Metadata, DescribeTopicPartitions and ListOffsets."""
    (known,) = (await client.send(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)))).topics
    described = await client.send(DescribeTopicPartitionsRequest(topics=(TopicRequest(name=topic),)))
    latest = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
    listed = await client.send(ListOffsetsRequest(replica_id=-1, topics=(latest,)))
    return {
        known.partitions[0].leader_epoch,
        described.topics[0].partitions[0].leader_epoch,
        listed.topics[0].partitions[0].leader_epoch,
    }


async def end_of(client: BrokerClient, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """Query the end of an epoch; return the error code, leader epoch and end offset of the response."""
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    topics = (OffsetForLeaderTopic(topic="t", partitions=(wanted,)),)
    response = await client.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
    found = response.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


async def fetch(client: BrokerClient, offset: int, **fields: int) -> Any:
    topic = client.broker.catalogue.topics.by_name["t"].id
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
    topics = (FetchTopic(topic_id=topic, partitions=(wanted,)),)
    response = await client.send(FetchRequest(topics=topics, min_bytes=0, max_bytes=1 << 20))
    return response.responses[0].partitions[0]


def test_the_epoch_counts_the_starts_since_the_topics_creation(tmp_path: Path) -> None:
    async def first(client: BrokerClient) -> None:
        await client.topic("t")
        client.write("t", b"a", b"b")
        assert await leader_epochs(client, "t") == {0}
        assert await end_of(client, 0) == (Errors.NONE, 0, 2)
        assert await end_of(client, 1) == (Errors.NONE, -1, -1)

    async def second(client: BrokerClient) -> None:
        await client.topic("later")
        assert await leader_epochs(client, "t") == {1}
        assert await leader_epochs(client, "later") == {0}
        assert await end_of(client, 0) == (Errors.NONE, 0, 2)
        assert await end_of(client, 1) == (Errors.NONE, 1, 2)
        client.write("t", b"c")
        assert await end_of(client, 0) == (Errors.NONE, 0, 2)
        assert await end_of(client, 1) == (Errors.NONE, 1, 3)

    async def third(client: BrokerClient) -> None:
        assert await leader_epochs(client, "t") == {2}
        assert await leader_epochs(client, "later") == {1}
        assert [await end_of(client, epoch) for epoch in (0, 1, 2, 3)] == [
            (Errors.NONE, 0, 2), (Errors.NONE, 1, 3), (Errors.NONE, 2, 3), (Errors.NONE, -1, -1),
        ]  # fmt: skip

    run_broker(tmp_path, first, second, third)


def test_requests_with_an_older_leader_epoch_are_fenced(tmp_path: Path) -> None:
    """FENCED_LEADER_EPOCH names the current leader and epoch; a newer epoch is UNKNOWN_LEADER_EPOCH."""

    async def first(client: BrokerClient) -> None:
        await client.topic("t")
        client.write("t", b"a")
        assert (await fetch(client, 0, current_leader_epoch=0)).error_code == Errors.NONE

    async def second(client: BrokerClient) -> None:
        fenced = await fetch(client, 0, current_leader_epoch=0)
        assert fenced.error_code == Errors.FENCED_LEADER_EPOCH
        assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == (1, 1)
        assert (await fetch(client, 0, current_leader_epoch=1)).error_code == Errors.NONE
        assert (await fetch(client, 0, current_leader_epoch=2)).error_code == Errors.UNKNOWN_LEADER_EPOCH
        assert (await end_of(client, 0, current=0))[0] == Errors.FENCED_LEADER_EPOCH

    run_broker(tmp_path, first, second)


def test_records_have_the_epoch_of_their_start_and_a_lost_record_is_detected(tmp_path: Path) -> None:
    """A consumer has read a record that a power failure then removed; its offset has a new record."""

    async def first(client: BrokerClient) -> None:
        await client.topic("t")
        client.write("t", b"kept")
        client.write("t", b"lost")

    async def second(client: BrokerClient) -> None:
        client.write("t", b"new")
        seen = await fetch(client, 0)
        assert [(h.base_offset, h.partition_leader_epoch) for h, _ in batches(seen.records)] == [
            (0, 0),
            (1, 1),
        ]
        diverged = await fetch(client, 2, last_fetched_epoch=0)
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 1)
        assert not diverged.records
        right = await fetch(client, 2, last_fetched_epoch=1)
        assert (right.error_code, right.diverging_epoch.epoch) == (Errors.NONE, -1)

    run_broker(tmp_path, first)
    for mark in (".kafka_cleanshutdown", ".konvene_summary", "recovery-point-offset-checkpoint"):
        (tmp_path / mark).unlink(missing_ok=True)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    data = log.read_bytes()
    ((header, _), _) = batches(data)
    log.write_bytes(data[: header.size])
    run_broker(tmp_path, second)
