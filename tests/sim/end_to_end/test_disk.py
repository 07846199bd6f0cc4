"""The broker on a disk with bit rot, I/O errors and power cuts: detection, recovery, durability."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from konvene.broker.storage.partitions import Partition
from konvene.client.admin.admin import Admin
from konvene.client.errors import ClientError, KafkaError
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Producer
from konvene.codec.batches import batches, records
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.log.disk.memory import PowerCut
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.sim.end_to_end import run_end_to_end
from konvene.sim.end_to_end.broker import BROKER, DATA, PORT, BrokerHost
from konvene.sim.end_to_end.invariants import Violation
from konvene.sim.machine.disk import DiskFaults, SimDisk
from konvene.sim.machine.loop import SimLoop

SETTINGS = {"konvene.log.fsync.topics": "true", "offsets.topic.num.partitions": "1"}
QUICK = ClientSettings(default_api_timeout_ms=5_000)

Scenario = Callable[[SimLoop, BrokerHost, Cluster], Awaitable[None]]


def run_scenario(scenario: Scenario) -> None:
    loop = SimLoop(Random(1))
    config, _ = BrokerConfig.load(overrides=list(SETTINGS.items()))
    host = BrokerHost(loop, config, SimDisk(Random(1)), 1)

    async def main() -> None:
        host.start()
        await host.served.wait()

        async def client() -> None:
            async with Cluster([(BROKER, PORT)], QUICK) as cluster:
                await Admin(cluster).create_topic("t", partitions=2)
                await scenario(loop, host, cluster)

        await loop.spawn("client", client())

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


async def write(cluster: Cluster, count: int, partition: int = 0) -> list[int]:
    """Write `count` records, one per batch; return their offsets."""
    offsets = []
    async with Producer(cluster, clock_ms=lambda: 1, delivery_timeout_ms=5_000) as producer:
        for i in range(count):
            sent = await producer.send("t", b"value %d" % i * 50, partition=partition)
            offsets.append((await sent).offset)
    return offsets


async def read(cluster: Cluster, partition: int) -> tuple[int, int]:
    """Fetch a partition; return the error code and the number of records."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=(wanted,))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(topic,))
    answer = await cluster.ask(lambda _connection: (request, 12))
    (fetched,) = answer.responses[0].partitions
    return fetched.error_code, sum(1 for h, b in batches(fetched.records or b"") for _ in records(b, h))


async def restart_member(host: BrokerHost) -> None:
    """Kill the broker and start it again, so that it recovers its log."""
    host.kill()
    host.served.clear()
    host.start()
    await host.served.wait()


@pytest.mark.parametrize("position", [0.1, 0.5, 0.8])
def test_bit_rot_before_valid_batches_takes_the_partition_offline(position: float) -> None:
    """The partition is neither served nor truncated; the other partition is served."""

    async def scenario(loop: SimLoop, host: BrokerHost, cluster: Cluster) -> None:
        await write(cluster, 20)
        await write(cluster, 5, partition=1)
        (path,) = [p for p in host.disk.paths(f"{DATA}/t-0/") if p.endswith(".log")]
        size = len(host.disk.peek(path))
        host.disk.rot(path, int(size * position))
        assert host.disk.counts["rot"] == 1
        await restart_member(host)
        assert host.broker is not None
        assert host.broker.partitions.offline == {("t", 0)}
        assert await read(cluster, 0) == (Errors.KAFKA_STORAGE_ERROR, 0)
        assert await read(cluster, 1) == (0, 5)
        with pytest.raises(ClientError):
            await write(cluster, 1)
        assert len(host.disk.peek(path)) == size

    run_scenario(scenario)


def test_failed_disk_is_not_used_again_and_acknowledged_records_remain() -> None:
    async def scenario(loop: SimLoop, host: BrokerHost, cluster: Cluster) -> None:
        await write(cluster, 3)
        host.disk.faults = DiskFaults(sync=1.0)
        with pytest.raises(ClientError):
            await write(cluster, 1)
        host.disk.faults = DiskFaults()
        assert host.disk_is_offline
        assert host.disk.counts["EIO sync"] == 1
        with pytest.raises(ClientError):
            await write(cluster, 1)
        await restart_member(host)
        assert not host.disk_is_offline
        error, count = await read(cluster, 0)
        assert error == 0
        assert count >= 3

    run_scenario(scenario)


def test_recovery_truncates_the_partial_batch_of_a_full_disk() -> None:
    async def scenario(loop: SimLoop, host: BrokerHost, cluster: Cluster) -> None:
        await write(cluster, 3)
        host.disk.faults = DiskFaults(write=1.0, full=1.0)
        with pytest.raises(KafkaError):
            await Admin(cluster).create_topic("u", partitions=1)
        host.disk.faults = DiskFaults()
        assert host.disk_is_offline
        assert set(host.disk.counts) == {"ENOSPC append"}
        await restart_member(host)
        assert await read(cluster, 0) == (0, 3)
        await Admin(cluster).create_topic("u", partitions=1)

    run_scenario(scenario)


@pytest.mark.parametrize("power", [False, True])
def test_acknowledged_records_survive_a_crash_at_any_disk_operation(power: bool) -> None:
    """The broker crashes at its n-th disk operation, with or without a power cut."""

    async def scenario(loop: SimLoop, host: BrokerHost, cluster: Cluster) -> None:
        acknowledged = 0
        for operations in range(1, 12):
            host.die_soon(operations, power=power)
            previous_lives = host.lives
            while host.is_up:
                try:
                    acknowledged = max(acknowledged, 1 + max(await write(cluster, 1)))
                except ClientError:
                    break
            assert not host.is_up
            host.served.clear()
            host.start()
            await host.served.wait()
            assert host.lives == previous_lives + 1
            error, count = await read(cluster, 0)
            assert error == 0
            assert count >= acknowledged

    run_scenario(scenario)


def test_dead_process_cannot_write() -> None:
    disk = SimDisk(Random(1))
    file = disk.open("/f", create=True)
    file.append(b"one")
    disk.sync_directory("/")
    after = disk.after_kill()
    with pytest.raises(PowerCut):
        file.append(b"two")
    assert after.peek("/f") == b"one"
    assert after.cut_power().peek("/f") in (b"", b"o", b"on", b"one")


def test_disk_operations_fail_at_the_configured_rates() -> None:
    """Each kind of operation fails at its own rate and with its own error."""
    disk = SimDisk(Random(1), DiskFaults(read=1.0))
    disk.faults = DiskFaults()
    file = disk.open("/f", create=True)
    file.append(b"one")
    disk.faults = DiskFaults(read=1.0)
    with pytest.raises(OSError, match="Input/output") as found:
        file.pread(1, 0)
    assert found.value.errno == errno.EIO
    file.sync()
    disk.faults = DiskFaults(sync=0.5)
    failed = 0
    for _ in range(1_000):
        try:
            file.sync()
        except OSError:
            failed += 1
    assert 400 < failed < 600
    assert disk.lying


def test_reading_unsynced_records_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the high watermark at the log end, a power cut removes records that consumers have read."""
    monkeypatch.setattr(Partition, "high_watermark", property(lambda self: self.log.end_offset))
    with pytest.raises(Violation) as found:
        for seed in (60, 63, 23, 54, *range(40)):  # The first four detect it.
            run_end_to_end(seed, 4_000)
    assert found.value.invariant in ("ReadInOrder", "Settles")
