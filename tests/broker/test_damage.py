"""A log that is damaged in the middle takes its partition offline, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.running import running

from konvene.broker.coordinator import Call
from konvene.broker.handlers import find_coordinator, metadata, produce
from konvene.cluster.names import OFFSETS_TOPIC
from konvene.codec.batches import build_simple
from konvene.errors import Errors
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def batch(text: bytes) -> bytes:
    return build_simple([(None, text)], 1_700_000_000_000)


def write(partition: int, text: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch(text))
    return ProduceRequest(acks=1, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))


def spoil(path: Path, at: int) -> None:
    """Flip a bit, and take away the mark of a proper close."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    (path.parent.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (path.parent.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


def test_a_damaged_partition_is_offline_and_says_so(tmp_path: Path) -> None:
    """Its neighbours are served; Metadata names no leader for it; a write is a storage error."""

    async def before() -> None:
        async with running(tmp_path, {"num.partitions": "2"}) as broker:
            await broker.create_missing(["t"])
            for text in (b"one", b"two", b"three"):
                produce.handle(broker, write(0, text), Call(api_version=9))

    async def after() -> None:
        async with running(tmp_path) as broker:
            v9 = Call(api_version=9)
            asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
            told = metadata.handle(broker, asked, v9).topics[0].partitions
            assert [(p.error_code, p.leader_id) for p in told] == [
                (Errors.LEADER_NOT_AVAILABLE, -1),
                (Errors.NONE, broker.node_id),
            ]
            for index, error in ((0, Errors.KAFKA_STORAGE_ERROR), (1, Errors.NONE)):
                answer = produce.handle(broker, write(index, b"more"), v9)
                assert answer.responses[0].partition_responses[0].error_code == error

    asyncio.run(before())
    spoil(tmp_path / "t-0" / "00000000000000000000.log", 100)
    asyncio.run(after())


def test_a_damaged_coordinator_log_takes_only_its_groups_down(tmp_path: Path) -> None:
    """The broker starts; the groups of the other partitions have their coordinators."""

    async def before() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            partition = broker.partitions.get(OFFSETS_TOPIC, 0)
            assert partition is not None
            for _ in range(3):
                partition.append([(b"\0\x7fkey", b"\0\0value")], 1_700_000_000_000)

    async def after() -> None:
        async with running(tmp_path) as broker:
            await asyncio.sleep(0.1)
            found = find_coordinator.handle(
                broker, FindCoordinatorRequest(coordinator_keys=("a", "b")), Call(api_version=4)
            )
            assert len(found.coordinators) == 2
            served = [broker.groups.of(group) is not None for group in ("a", "b")]
            assert sorted(served) == [False, True]
            for coordinator in broker.groups.all():
                listed = await coordinator.submit(ListGroupsRequest(), Call(api_version=5))
                assert isinstance(listed, ListGroupsResponse)

    asyncio.run(before())
    spoil(tmp_path / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log", 65)
    asyncio.run(after())
