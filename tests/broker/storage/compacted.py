"""A broker with a compacted topic, on a real disk, and its cleaner."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.broker.storage import cleaner_executor
from konvene.broker.storage.partitions import Partition
from konvene.codec.batches import records
from konvene.log.checkpoints import TopicPartition
from konvene.log.partition import PartitionLog
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "konvene.audit.enable": "false",
}
PROCESS = {"konvene.log.cleaner.process.min.bytes": "0"}
SLOW = {"log.cleaner.io.max.bytes.per.second": "2000"}

T = TopicPartition("t", 0)
ENDINGS = {"log", "index", "timeindex", "snapshot", "metadata", "leader-epoch-checkpoint"}

Story = Callable[[Broker, Partition], Awaitable[None]]


def run(path: Path, scenario: Story, settings: dict[str, str] | None = None, **configs: str) -> None:
    """A scenario with a compacted topic of one partition."""

    async def main() -> None:
        async with running(path, SETTINGS | (settings or {})) as broker:
            if "t" not in broker.catalogue.topics.by_name:
                await create(broker, **configs)
            await scenario(broker, the_partition(broker))

    asyncio.run(main())


async def create(broker: Broker, **configs: str) -> None:
    wanted = {"cleanup.policy": "compact", "segment.ms": "40", "min.cleanable.dirty.ratio": "0.01"}
    wanted |= {name.replace("_", "."): value for name, value in configs.items()}
    told = tuple(CreatableTopicConfig(name=name, value=value) for name, value in wanted.items())
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=told)
    answer = await BrokerClient(broker).send(CreateTopicsRequest(topics=(topic,)))
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def the_partition(broker: Broker) -> Partition:
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def fill(broker: Broker, partition: Partition, rounds: int = 20, keys: int = 50) -> None:
    """Each key again and again, so many times as a segment may grow for, and all of it on the disk."""
    now_ms = broker.environment.wall_clock_ms() - 10 * rounds
    for turn in range(rounds):
        pairs = [(b"key-%d" % key, b"%d" % turn + bytes(40)) for key in range(keys)]
        partition.append(list(pairs), now_ms + 10 * turn)
    await partition.sync()
    await broker.log_maintenance.checkpoint()


def found(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for header, batch in log.batches_from()
        for record in records(batch, header)
    ]


def endings(log: PartitionLog) -> set[str]:
    """Of the names of all its files."""
    return {path.name.rpartition(".")[2] for path in Path(log.directory).iterdir()}


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(80)
        file.write(b"x")


def latest(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    """What a reader knows in the end."""
    return {key: (offset, value) for offset, key, value in found(log)}


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)


async def cleaned(broker: Broker, partition: Partition) -> None:
    """Until all but the growing segment is clean, and nobody cleans."""
    name = TopicPartition(partition.topic, partition.index)
    directory = broker.directory
    await until(lambda: directory.cleaned_to(name) == partition.log.active_segment.base_offset)
    await until(lambda: not broker.cleaner.in_progress)


async def alter(broker: Broker, name: str, value: str) -> str | None:
    """Why it was refused."""
    change = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=(AlterableConfig(name=name, config_operation=0, value=value),),
    )
    answer = await BrokerClient(broker).send(IncrementalAlterConfigsRequest(resources=(change,)))
    refusal: str | None = answer.responses[0].error_message
    return refusal


async def stopped(broker: Broker) -> int:
    """Stop the process that has just begun to clean; its id."""
    await until(lambda: worker_of(broker) is not None)
    pid = worker_of(broker)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def worker_of(broker: Broker) -> int | None:
    executor = broker.cleaner.cleaners[0].executor
    return executor.pid if isinstance(executor, cleaner_executor.WorkerProcess) else None


def is_running(pid: int) -> bool:
    """Whether it does anything. One that is dead may still be there, where nobody asked for it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
