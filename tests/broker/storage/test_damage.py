"""A log that is damaged in the middle takes only its own partition offline."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.broker.running import running
from tests.broker.storage.test_disk_faults import ClientHistory, create, started
from tests.broker.storage.test_disk_faults import write as write_durably

from konvene.broker.broker import Broker
from konvene.broker.handlers import find_coordinator, metadata, produce
from konvene.broker.services import bind
from konvene.cli.app import konvene
from konvene.codec.batches import build_simple, records
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.disk.memory import MemoryDisk
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.runtime.coordinator import RequestContext


def batch(text: bytes) -> bytes:
    return build_simple([(None, text)], 1_700_000_000_000)


def write(partition: int, text: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch(text))
    return ProduceRequest(acks=1, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))


def damage_log(path: Path, at: int) -> None:
    """Flip a bit of a log file, and remove the marker of a clean shutdown."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    (path.parent.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (path.parent.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


def test_a_damaged_partition_is_offline(tmp_path: Path) -> None:
    """Metadata has no leader for it, and a write fails with a storage error; other partitions are served."""

    async def before() -> None:
        async with running(tmp_path, {"num.partitions": "2"}) as broker:
            await broker.topic_creator.create_missing(["t"])
            for text in (b"one", b"two", b"three"):
                bind(produce.handle, broker.services)(write(0, text), RequestContext(api_version=9))

    async def after() -> None:
        async with running(tmp_path) as broker:
            v9 = RequestContext(api_version=9)
            request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
            partitions = bind(metadata.handle, broker.services)(request, v9).topics[0].partitions
            assert [(p.error_code, p.leader_id) for p in partitions] == [
                (Errors.LEADER_NOT_AVAILABLE, -1),
                (Errors.NONE, broker.catalogue.node_id),
            ]
            for index, error in ((0, Errors.KAFKA_STORAGE_ERROR), (1, Errors.NONE)):
                response = bind(produce.handle, broker.services)(write(index, b"more"), v9)
                assert response.responses[0].partition_responses[0].error_code == error

    asyncio.run(before())
    damage_log(tmp_path / "t-0" / "00000000000000000000.log", 100)
    asyncio.run(after())


def test_a_damaged_coordinator_log_affects_only_its_groups(tmp_path: Path) -> None:
    """The broker starts, and the groups of the other partitions have coordinators."""

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
            found = bind(find_coordinator.handle, broker.services)(
                FindCoordinatorRequest(coordinator_keys=("a", "b")), RequestContext(api_version=4)
            )
            assert len(found.coordinators) == 2
            served = [broker.groups.of(group) is not None for group in ("a", "b")]
            assert sorted(served) == [False, True]
            for coordinator in broker.groups.all():
                listed = await coordinator.submit(ListGroupsRequest(), RequestContext(api_version=5))
                assert isinstance(listed, ListGroupsResponse)

    asyncio.run(before())
    damage_log(tmp_path / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log", 65)
    asyncio.run(after())


def test_log_verify_reports_the_damage_that_takes_a_partition_offline(tmp_path: Path) -> None:
    """`konvene log verify` names the same file and byte as the running broker; `log repair` mends the log."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.topic_creator.create_missing(["t"])
            for text in (b"one", b"two", b"three"):
                bind(produce.handle, broker.services)(write(0, text), RequestContext(api_version=9))
        path = tmp_path / "t-0" / "00000000000000000000.log"
        damage_log(path, 100)
        async with running(tmp_path) as broker:
            (damage,) = broker.directory.damaged.values()
            assert (damage.path, damage.position) == (str(path), 71)
            verification = CliRunner().invoke(konvene, ["log", "verify", str(tmp_path)])
            assert verification.exit_code == 1
            assert f"damage: {path.name}, byte 71, offset 1: " in verification.output
            assert "a sound batch follows at byte 142" in verification.output
            rejected_repair = CliRunner().invoke(konvene, ["log", "repair", str(tmp_path), "--execute"])
            assert rejected_repair.exit_code == 1
        repair = CliRunner().invoke(konvene, ["log", "repair", str(tmp_path), "--execute"])
        assert repair.exit_code == 0
        async with running(tmp_path) as broker:
            response = bind(produce.handle, broker.services)(write(0, b"more"), RequestContext(api_version=9))
            assert response.responses[0].partition_responses[0].base_offset == 1

    asyncio.run(main())


LOG = "/d/t-0/00000000000000000000.log"


async def three_batches(*, checkpoint: bool) -> MemoryDisk:
    """Return the disk of a broker that was killed after three acknowledged writes."""
    disk, history = MemoryDisk(), ClientHistory()
    broker = await started(disk)
    await create(broker, history)
    for _ in range(3):
        await write_durably(broker, history, 0)
    assert history.errors == set()
    if checkpoint:
        await broker.log_maintenance.checkpoint()
    return disk.copy()


def with_bytes(disk: MemoryDisk, data: bytes) -> MemoryDisk:
    """Return a copy of the disk whose log file has the given content."""
    twin = disk.copy()
    file = twin.open(LOG)
    file.truncate(0)
    file.append(data)
    return twin


async def served(broker: Broker) -> list[bytes | None] | None:
    """Return the values in partition 0, then write to both partitions; None if partition 0 is offline."""
    partition = broker.partitions.get("t", 0)
    history = ClientHistory()
    found = None
    if partition is not None:
        found = [entry.value for header, view in partition.batches() for entry in records(view, header)]
    await write_durably(broker, history, 0)
    assert history.errors == (set() if partition is not None else {Errors.KAFKA_STORAGE_ERROR})
    await write_durably(broker, history, 1)
    assert len(history.acknowledged[1]) == 1
    return found


@pytest.mark.parametrize("checkpoint", [False, True])
def test_each_byte_of_the_last_batch_may_be_cut_or_changed(checkpoint: bool) -> None:
    """A torn tail is truncated; damage below the recovery point takes the partition offline.

    No batch with a wrong checksum is ever served.
    """

    async def main() -> None:
        disk = await three_batches(checkpoint=checkpoint)
        data = disk.read(LOG)
        size = len(data) // 3
        values = [b"0/%d" % at + b"." * 60 for at in range(3)]
        for at in range(2 * size, len(data)):
            found = await served(await started(with_bytes(disk, data[:at])))
            assert found == (None if checkpoint else values[:2])
            changed = bytearray(data)
            changed[at] ^= 0x41
            found = await served(await started(with_bytes(disk, bytes(changed))))
            position = at - 2 * size
            if 12 <= position < 16:  # The checksum does not cover the leader epoch.
                assert found == values
            elif position < 8 or checkpoint:  # An impossible base offset, with a valid checksum.
                assert found is None or (position < 8 and found == values)
            else:
                assert found == values[:2]

    asyncio.run(main())
