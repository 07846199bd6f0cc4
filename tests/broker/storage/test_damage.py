"""A log that is damaged in the middle takes its partition offline, and nothing else."""

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
            await broker.topic_creator.create_missing(["t"])
            for text in (b"one", b"two", b"three"):
                bind(produce.handle, broker.services)(write(0, text), RequestContext(api_version=9))

    async def after() -> None:
        async with running(tmp_path) as broker:
            v9 = RequestContext(api_version=9)
            asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
            told = bind(metadata.handle, broker.services)(asked, v9).topics[0].partitions
            assert [(p.error_code, p.leader_id) for p in told] == [
                (Errors.LEADER_NOT_AVAILABLE, -1),
                (Errors.NONE, broker.catalogue.node_id),
            ]
            for index, error in ((0, Errors.KAFKA_STORAGE_ERROR), (1, Errors.NONE)):
                answer = bind(produce.handle, broker.services)(write(index, b"more"), v9)
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
    spoil(tmp_path / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log", 65)
    asyncio.run(after())


def test_verify_names_the_place_that_takes_a_partition_offline(tmp_path: Path) -> None:
    """The command says the very file and byte of the broker's own line, while the broker runs; repaired,
    the partition is served again."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.topic_creator.create_missing(["t"])
            for text in (b"one", b"two", b"three"):
                bind(produce.handle, broker.services)(write(0, text), RequestContext(api_version=9))
        path = tmp_path / "t-0" / "00000000000000000000.log"
        spoil(path, 100)
        async with running(tmp_path) as broker:
            (damage,) = broker.directory.damaged.values()
            assert (damage.path, damage.position) == (str(path), 71)
            told = CliRunner().invoke(konvene, ["log", "verify", str(tmp_path)])
            assert told.exit_code == 1
            assert f"damage: {path.name}, byte 71, offset 1: " in told.output
            assert "a sound batch follows at byte 142" in told.output
            refused = CliRunner().invoke(konvene, ["log", "repair", str(tmp_path), "--execute"])
            assert refused.exit_code == 1
        done = CliRunner().invoke(konvene, ["log", "repair", str(tmp_path), "--execute"])
        assert done.exit_code == 0
        async with running(tmp_path) as broker:
            answer = bind(produce.handle, broker.services)(write(0, b"more"), RequestContext(api_version=9))
            assert answer.responses[0].partition_responses[0].base_offset == 1

    asyncio.run(main())


LOG = "/d/t-0/00000000000000000000.log"


async def three_batches(*, checkpoint: bool) -> MemoryDisk:
    """What a broker leaves that was killed after three acknowledged writes."""
    disk, told = MemoryDisk(), ClientHistory()
    broker = await started(disk)
    await create(broker, told)
    for _ in range(3):
        await write_durably(broker, told, 0)
    assert told.errors == set()
    if checkpoint:
        await broker.log_maintenance.checkpoint()
    return disk.copy()


def with_bytes(disk: MemoryDisk, data: bytes) -> MemoryDisk:
    twin = disk.copy()
    file = twin.open(LOG)
    file.truncate(0)
    file.append(data)
    return twin


async def served(broker: Broker) -> list[bytes | None] | None:
    """What can be read of the partition, which then takes one more; None where it is offline and says so."""
    partition = broker.partitions.get("t", 0)
    told = ClientHistory()
    found = None
    if partition is not None:
        found = [entry.value for header, view in partition.batches() for entry in records(view, header)]
    await write_durably(broker, told, 0)
    assert told.errors == (set() if partition is not None else {Errors.KAFKA_STORAGE_ERROR})
    await write_durably(broker, told, 1)
    assert len(told.acknowledged[1]) == 1
    return found


@pytest.mark.parametrize("checkpoint", [False, True])
def test_each_byte_of_the_last_batch_may_be_cut_or_changed(checkpoint: bool) -> None:
    """A broker that starts on it serves sound batches only: a torn tail goes, what was known to be durable
    is missed, and nothing that a checksum covers is ever served changed."""

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
            place = at - 2 * size
            if 12 <= place < 16:  # The leader epoch stands in front of the checksum.
                assert found == values
            elif place < 8 or checkpoint:  # An offset that cannot be, where the checksum holds.
                assert found is None or (place < 8 and found == values)
            else:
                assert found == values[:2]

    asyncio.run(main())
