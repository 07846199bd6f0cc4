"""A broker with a compacted topic on a real disk, and helpers to fill, clean and inspect its log."""

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

Scenario = Callable[[Broker, Partition], Awaitable[None]]


def run(path: Path, scenario: Scenario, settings: dict[str, str] | None = None, **configs: str) -> None:
    """Run a scenario on a broker with a compacted topic of one partition."""

    async def main() -> None:
        async with running(path, SETTINGS | (settings or {})) as broker:
            if "t" not in broker.catalogue.topics.by_name:
                await create(broker, **configs)
            await scenario(broker, the_partition(broker))

    asyncio.run(main())


async def create(broker: Broker, **configs: str) -> None:
    wanted = {"cleanup.policy": "compact", "segment.ms": "40", "min.cleanable.dirty.ratio": "0.01"}
    wanted |= {name.replace("_", "."): value for name, value in configs.items()}
    topic_configs = tuple(CreatableTopicConfig(name=name, value=value) for name, value in wanted.items())
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=topic_configs)
    response = await BrokerClient(broker).send(CreateTopicsRequest(topics=(topic,)))
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def the_partition(broker: Broker) -> Partition:
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def fill(broker: Broker, partition: Partition, rounds: int = 20, keys: int = 50) -> None:
    """Write each key `rounds` times, with timestamps that roll segments, and sync the log."""
    append(broker, partition, rounds, keys)
    await partition.sync()
    await broker.log_maintenance.checkpoint()


def append(broker: Broker, partition: Partition, rounds: int = 20, keys: int = 50) -> None:
    """Write each key `rounds` times, with timestamps that roll segments."""
    now_ms = broker.environment.wall_clock_ms() - 10 * rounds
    for round_ in range(rounds):
        pairs = [(b"key-%d" % key, b"%d" % round_ + bytes(40)) for key in range(keys)]
        partition.append(list(pairs), now_ms + 10 * round_)


def found(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the offset, key and value of each record of the log."""
    return [
        (record.offset, record.key, record.value)
        for header, batch in log.batches_from()
        for record in records(batch, header)
    ]


def endings(log: PartitionLog) -> set[str]:
    """Return the file-name extensions in the directory of the log."""
    return {path.name.rpartition(".")[2] for path in Path(log.directory).iterdir()}


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(80)
        file.write(b"x")


def latest(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Return the last offset and value of each key."""
    return {key: (offset, value) for offset, key, value in found(log)}


async def until(condition: Callable[[], object]) -> None:
    """Poll until the condition holds; fail after 30 seconds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.005)


async def cleaned(broker: Broker, partition: Partition) -> None:
    """Wait until all but the active segment is clean, and no cleaning runs."""
    name = TopicPartition(partition.topic, partition.index)
    directory = broker.directory
    await until(lambda: directory.cleaned_to(name) == partition.log.active_segment.base_offset)
    await until(lambda: not broker.cleaner.in_progress)


async def alter(broker: Broker, name: str, value: str) -> str | None:
    """Alter a broker config; return the error message of the response."""
    change = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=(AlterableConfig(name=name, config_operation=0, value=value),),
    )
    response = await BrokerClient(broker).send(IncrementalAlterConfigsRequest(resources=(change,)))
    message: str | None = response.responses[0].error_message
    return message


async def stopped(broker: Broker) -> int:
    """Wait for a cleaner process, suspend it with SIGSTOP, and return its id."""
    await until(lambda: worker_of(broker) is not None)
    pid = worker_of(broker)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def worker_of(broker: Broker) -> int | None:
    executor = broker.cleaner.cleaners[0].executor
    return executor.pid if isinstance(executor, cleaner_executor.WorkerProcess) else None


def is_running(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
