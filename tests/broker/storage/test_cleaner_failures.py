"""What becomes of a log that cannot be cleaned, and of the cleaner when settings say other things."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.storage.compacted import (
    PROCESS,
    SLOW,
    T,
    alter,
    cleaned,
    create,
    damage,
    fill,
    found,
    latest,
    run,
    the_partition,
    until,
)

from konvene.broker.broker import Broker
from konvene.broker.storage import cleaner_executor
from konvene.broker.storage.partitions import Partition
from konvene.log.cleaner import cleaning as cleaner
from konvene.log.cleaner.cleaning import Clock
from konvene.log.cleaner.contract import CleanedSegment, CleanerProgress, CleanerStats, CleaningTask
from konvene.log.disk.files import Disk
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the next cleanings fail with."""
    errors: list[BaseException] = []

    def clean(
        disk: Disk, task: CleaningTask, clock: Clock | None = None
    ) -> Generator[CleanerProgress | CleanedSegment, None, CleanerStats]:
        steps = cleaner.clean(disk, task, clock=clock)
        if errors:
            yield next(steps)
            raise errors.pop(0)
        return (yield from steps)

    monkeypatch.setattr(cleaner_executor, "clean", clean)
    return errors


def test_a_full_disk_stops_no_broker(
    tmp_path: Path, failing: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again until there is room."""
    failing += [OSError(errno.ENOSPC, "No space left on device")] * 3

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        before = latest(partition.log)
        await cleaned(broker, partition)
        assert latest(partition.log) == before
        assert partition.online

    run(tmp_path, scenario)
    told = [each.message for each in caplog.records if each.name == "konvene.cleaner"]
    assert told == ["t-0: cleaning failed and will be retried: [Errno 28] No space left on device"] * 3


def test_an_error_of_the_disk_takes_it_out_of_use(tmp_path: Path, failing: list[BaseException]) -> None:
    """As anywhere: what cannot be read cannot be served."""
    failing.append(OSError(errno.EIO, "Input/output error"))

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await until(lambda: not partition.online)
        assert "cannot clean" in str(broker.directory.health.failure)

    run(tmp_path, scenario)


@pytest.mark.parametrize("settings", [{}, PROCESS], ids=["slices", "process"])
def test_a_damaged_log_is_left_alone(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost that was there, others are cleaned, and it is said once."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        await BrokerClient(broker).send(
            CreateTopicsRequest(
                topics=(
                    CreatableTopic(
                        name="u", num_partitions=1, replication_factor=1,
                        configs=(
                            CreatableTopicConfig(name="cleanup.policy", value="compact"),
                            CreatableTopicConfig(name="segment.ms", value="40"),
                        ),
                    ),
                )
            )
        )  # fmt: skip
        for turn in range(20):
            partition.append([(b"k", bytes(100))], 1_000 + 10 * turn)
        damage(Path(partition.log.segments[1].path))
        before = [header for header, _ in partition.log.batches_from()]
        await partition.sync()
        await until(lambda: T in broker.cleaner.uncleanable)
        assert [header for header, _ in partition.log.batches_from()] == before
        other = broker.partitions.get("u", 0)
        assert other is not None
        await fill(broker, other)
        await cleaned(broker, other)

    run(tmp_path, scenario, settings)
    told = [each.message for each in caplog.records if each.name == "konvene.cleaner"]
    assert len(told) == 1
    assert "t-0 is uncleanable from now on: " in told[0]
    assert "is damaged at byte" in told[0]


def test_what_nobody_foresaw_makes_a_log_uncleanable(
    tmp_path: Path, failing: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka; until it is deleted."""
    failing.append(ZeroDivisionError("so it is"))

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await until(lambda: T in broker.cleaner.uncleanable)
        assert not broker.cleaner.cleaners[0].dead
        await BrokerClient(broker).drop("t")
        assert not broker.cleaner.uncleanable
        await create(broker)
        await fill(broker, the_partition(broker))
        await cleaned(broker, the_partition(broker))

    run(tmp_path, scenario)
    (told,) = [each for each in caplog.records if each.name == "konvene.cleaner"]
    assert told.exc_info is not None


def test_cleaners_come_and_go_with_their_number(tmp_path: Path) -> None:
    """As far as Kafka lets it be altered; two logs are then cleaned at a time."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        cleaning = broker.cleaner
        assert [cleaner.number for cleaner in cleaning.cleaners] == [0]
        refusal = await alter(broker, "log.cleaner.threads", "3")
        assert refusal == "Log cleaner threads cannot be increased to more than double the current value 1"
        assert await alter(broker, "log.cleaner.threads", "2") is None
        await until(lambda: len(cleaning.cleaners) == 2)
        assert await alter(broker, "log.cleaner.threads", "1") is None
        await until(lambda: [cleaner.number for cleaner in cleaning.cleaners] == [0])

    run(tmp_path, scenario)


def test_a_cleaner_that_is_off_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And leaves the logs alone, but for what retention takes."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        before = found(partition.log)
        await asyncio.sleep(0.1)
        assert found(partition.log) == before
        assert broker.cleaner.cleaners == []
        partition.log.config = replace(
            partition.log.config, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=0
        )
        await broker.log_maintenance.retain()
        assert found(partition.log) == []

    run(tmp_path, scenario, {"log.cleaner.enable": "false"})
    (told,) = [each.message for each in caplog.records if each.name == "konvene.cleaner"]
    assert told.startswith("log.cleaner.enable is false: ")


def test_retention_of_a_compacted_log_is_the_cleaners(tmp_path: Path) -> None:
    """With `compact,delete` by age, and what lies before the start of a log that is compacted alone."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        assert len(partition.log.segments) > 3
        await broker.log_maintenance.retain()
        assert partition.start_offset == 0
        row = DeleteRecordsPartition(partition_index=0, offset=700)
        topic = DeleteRecordsTopic(name="t", partitions=(row,))
        await BrokerClient(broker).send(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))
        await until(lambda: partition.log.segments[0].next_offset > 700)
        partition.log.config = replace(
            partition.log.config, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=0
        )
        await until(lambda: partition.start_offset == 1000)

    run(tmp_path, scenario, min_cleanable_dirty_ratio="1")


def test_a_speed_limit_is_kept_in_slices(tmp_path: Path) -> None:
    """The pauses of a cleaning are as long as what it reads and writes asks for."""
    pauses = []

    async def scenario(broker: Broker, partition: Partition) -> None:
        async def pause(_: object, seconds: float) -> None:
            pauses.append(seconds)

        cleaner_executor.SteppedCleaning.pause = pause  # type: ignore[method-assign]
        await fill(broker, partition)
        await cleaned(broker, partition)

    kept = cleaner_executor.SteppedCleaning.pause
    try:
        run(tmp_path, scenario, SLOW)
    finally:
        cleaner_executor.SteppedCleaning.pause = kept  # type: ignore[method-assign]
    assert pauses
    assert max(pauses) > 1


def test_a_broker_that_has_nothing_to_clean_pays_nothing(tmp_path: Path) -> None:
    """Its compacted logs have one segment each: nothing is imported for them, no process and no thread."""
    script = """
import asyncio, sys, pathlib
from tests.broker.running import running
async def main():
    async with running(pathlib.Path(sys.argv[1]), {"log.cleaner.backoff.ms": "20"}) as broker:
        await broker.groups.make_ready()
        last = broker.cleaner.last_run_ms
        while broker.cleaner.last_run_ms < last + 100:
            await asyncio.sleep(0.02)
        assert broker.cleaner.cleaners[0].worker is None
asyncio.run(main())
names = ("cleaning", "filtering", "offset_map", "worker", "lines", "choosing", "swapping")
print([name for name in names if "konvene.log.cleaner." + name in sys.modules])
print("konvene.broker.storage.cleaner_executor" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["[]", "False"]
