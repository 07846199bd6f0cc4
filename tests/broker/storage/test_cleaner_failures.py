"""Logs that cannot be cleaned, and changes of the cleaner's configs."""

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
    """Return a list of errors that the next cleanings raise."""
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


def test_a_full_disk_does_not_stop_the_broker(
    tmp_path: Path, failing: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """The cleaning is retried until it succeeds."""
    failing += [OSError(errno.ENOSPC, "No space left on device")] * 3

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        before = latest(partition.log)
        await cleaned(broker, partition)
        assert latest(partition.log) == before
        assert partition.online

    run(tmp_path, scenario)
    messages = [record.message for record in caplog.records if record.name == "konvene.cleaner"]
    assert messages == ["t-0: cleaning failed and will be retried: [Errno 28] No space left on device"] * 3


def test_an_io_error_takes_the_directory_offline(tmp_path: Path, failing: list[BaseException]) -> None:
    """As for any other operation: a log that cannot be read is not served."""
    failing.append(OSError(errno.EIO, "Input/output error"))

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await until(lambda: not partition.online)
        assert "cannot clean" in str(broker.directory.health.failure)

    run(tmp_path, scenario)


@pytest.mark.parametrize("settings", [{}, PROCESS], ids=["slices", "process"])
def test_a_damaged_log_is_not_cleaned(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The log stays unchanged, other logs are cleaned, and the damage is logged once."""

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
    (message,) = [record.message for record in caplog.records if record.name == "konvene.cleaner"]
    assert "t-0 is uncleanable from now on: " in message
    assert "is damaged at byte" in message


def test_an_unexpected_error_makes_a_log_uncleanable(
    tmp_path: Path, failing: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, until its topic is deleted."""
    failing.append(ZeroDivisionError("unexpected"))

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
    (record,) = [record for record in caplog.records if record.name == "konvene.cleaner"]
    assert record.exc_info is not None


def test_cleaner_threads_can_be_altered(tmp_path: Path) -> None:
    """Within Kafka's limits; each thread cleans one log at a time."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        cleaning = broker.cleaner
        assert [cleaner.number for cleaner in cleaning.cleaners] == [0]
        message = await alter(broker, "log.cleaner.threads", "3")
        assert message == "Log cleaner threads cannot be increased to more than double the current value 1"
        assert await alter(broker, "log.cleaner.threads", "2") is None
        await until(lambda: len(cleaning.cleaners) == 2)
        assert await alter(broker, "log.cleaner.threads", "1") is None
        await until(lambda: [cleaner.number for cleaner in cleaning.cleaners] == [0])

    run(tmp_path, scenario)


def test_a_disabled_cleaner_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logs are not cleaned, but retention still deletes their segments."""

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
    (message,) = [record.message for record in caplog.records if record.name == "konvene.cleaner"]
    assert message.startswith("log.cleaner.enable is false: ")


def test_the_cleaner_applies_the_retention_of_compacted_logs(tmp_path: Path) -> None:
    """By age with `compact,delete`; with `compact` alone, only records below the log start offset."""

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
    """A cleaning pauses in proportion to the bytes that it reads and writes."""
    pauses = []

    async def scenario(broker: Broker, partition: Partition) -> None:
        async def pause(_: object, seconds: float) -> None:
            pauses.append(seconds)

        cleaner_executor.SteppedCleaning.pause = pause  # type: ignore[method-assign]
        await fill(broker, partition)
        await cleaned(broker, partition)

    original_pause = cleaner_executor.SteppedCleaning.pause
    try:
        run(tmp_path, scenario, SLOW)
    finally:
        cleaner_executor.SteppedCleaning.pause = original_pause  # type: ignore[method-assign]
    assert pauses
    assert max(pauses) > 1


def test_a_broker_with_nothing_to_clean_loads_no_cleaner(tmp_path: Path) -> None:
    """Its compacted logs have one segment each: it imports no cleaner, and starts no process or thread."""
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
    completed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert completed.stdout.splitlines()[-2:] == ["[]", "False"]


def test_traceback_of_a_lost_process_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not go to the broker's standard error directly, which may be JSON."""
    monkeypatch.setattr(cleaner_executor, "MODULE", "konvene.log.cleaner.no_such_worker")

    async def main() -> None:
        worker = cleaner_executor.WorkerProcess(asyncio.get_running_loop())
        await worker._running_process()
        with pytest.raises(cleaner_executor.WorkerLost):
            await worker.next_result()
        await worker.close()

    asyncio.run(main())
    (line,) = [record for record in caplog.records if record.name == "konvene.cleaner"]
    assert "No module named konvene.log.cleaner.no_such_worker" in line.getMessage()
