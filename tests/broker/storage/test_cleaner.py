"""A broker cleans the logs of compacted topics while it serves clients, with unchanged responses."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.storage.compacted import (
    ENDINGS,
    PROCESS,
    SLOW,
    T,
    alter,
    append,
    cleaned,
    create,
    endings,
    fill,
    found,
    is_running,
    latest,
    run,
    stopped,
    the_partition,
    until,
    worker_of,
)

from konvene.broker.broker import Broker
from konvene.broker.storage import cleaner_executor
from konvene.broker.storage.partitions import Partition
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


@pytest.mark.parametrize("settings", [{}, PROCESS], ids=["slices", "process"])
def test_the_last_record_of_each_key_is_kept(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Offsets are unchanged, a cleaning logs one line, and replaced files are deleted after their delay."""
    caplog.set_level(logging.INFO, "konvene.cleaner")
    kept = {}

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        log, before = partition.log, latest(partition.log)
        assert len(log.segments) > 3
        await cleaned(broker, partition)
        assert latest(log) == before
        assert len(found(log)) < 20 * 50 / 2
        assert log.end_offset == 20 * 50
        await until(lambda: not log.replaced)
        assert endings(log) <= ENDINGS
        assert broker.cleaner.removed["t"].records == 20 * 50 - len(found(log))
        kept.update(before)

    run(tmp_path, scenario, settings)
    assert [record for record in caplog.records if record.message.startswith("cleaned t-0")]
    assert [each for each in caplog.records if each.levelno > logging.INFO and each.name != "asyncio"] == []

    async def again(_: Broker, partition: Partition) -> None:
        assert latest(partition.log) == kept

    run(tmp_path, again, {"log.cleaner.enable": "false"})


def test_rolled_segments_are_cleaned_before_the_next_checkpoint(tmp_path: Path) -> None:
    """`log.cleaner.backoff.ms` alone decides when a log is cleaned for the first time."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        append(broker, partition)
        await cleaned(broker, partition)
        assert len(found(partition.log)) < 20 * 50 / 2

    run(tmp_path, scenario, {"log.flush.offset.checkpoint.interval.ms": "1000000000"})


async def commit(broker: Broker, group: str, turn: int) -> None:
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=turn * 1000 + index)
        for index in range(20)
    )
    topic = OffsetCommitRequestTopic(name="u", partitions=rows)
    response = await BrokerClient(broker).send(OffsetCommitRequest(group_id=group, topics=(topic,)), 9)
    assert {row.error_code for row in response.topics[0].partitions} == {0}


async def committed(broker: Broker, group: str) -> list[int]:
    wanted = OffsetFetchRequestTopics(name="u", partition_indexes=tuple(range(20)))
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(wanted,)),))
    response = await BrokerClient(broker).send(request, 9)
    return [row.committed_offset for row in response.groups[0].topics[0].partitions]


def test_committed_offsets_survive_cleanings_of_their_log(tmp_path: Path) -> None:
    """During and after the cleaning, and when a restarted broker loads the cleaned log."""
    settings = {"offsets.topic.num.partitions": "1", "log.cleaner.min.cleanable.ratio": "0.01"}
    groups = [f"g{number}" for number in range(5)]
    turns = 60

    async def offsets(broker: Broker) -> Partition:
        partition = broker.partitions.get("__consumer_offsets", 0)
        assert partition is not None
        return partition

    async def scenario(broker: Broker, _: Partition) -> None:
        await BrokerClient(broker).topic("u", 20)
        await broker.groups.make_ready()
        await broker.groups.loaded()
        partition = await offsets(broker)
        for turn in range(turns):
            for group in groups:
                await commit(broker, group, turn)
            if turn % 10 == 9:
                partition.log.roll(broker.environment.wall_clock_ms())
                await partition.sync()
        assert partition.end_offset >= turns * 100
        await cleaned(broker, partition)
        assert len(found(partition.log)) < 1000
        for group in groups:
            assert await committed(broker, group) == [(turns - 1) * 1000 + index for index in range(20)]

    run(tmp_path, scenario, settings)

    async def again(broker: Broker, _: Partition) -> None:
        await broker.groups.loaded()
        for group in groups:
            assert await committed(broker, group) == [(turns - 1) * 1000 + index for index in range(20)]
        await commit(broker, groups[0], turns)
        assert (await committed(broker, groups[0]))[1] == turns * 1000 + 1

    run(tmp_path, again, settings)


@pytest.mark.parametrize("settings", [{}, PROCESS], ids=["slices", "process"])
def test_a_log_is_cleaned_while_it_grows(tmp_path: Path, settings: dict[str, str]) -> None:
    """Concurrent writes are neither lost nor reordered, and can be read meanwhile."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        expected = {}
        for turn in range(40):
            await fill(broker, partition, rounds=6, keys=30)
            expected = {b"key-%d" % key: (partition.end_offset - 30 + key) for key in range(30)}
            offsets = [offset for offset, _, _ in found(partition.log)]
            assert offsets == sorted(set(offsets))
            assert offsets[-30:] == list(range(partition.end_offset - 30, partition.end_offset))
            await asyncio.sleep(0.002 * (turn % 3))
        assert broker.cleaner.removed["t"].cleanings > 0
        await cleaned(broker, partition)
        assert {key: offset for key, (offset, _) in latest(partition.log).items()} == expected

    run(tmp_path, scenario, settings)


@pytest.mark.parametrize("settings", [SLOW, PROCESS], ids=["slices", "process"])
def test_a_topic_is_deleted_while_it_is_cleaned(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The cleaner aborts without an error, and cleans a new topic of the same name."""
    caplog.set_level(logging.INFO, "konvene.cleaner")

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await until(lambda: T in broker.cleaner.in_progress)
        if settings is PROCESS:
            await stopped(broker)
        await BrokerClient(broker).drop("t")
        assert partition.log.health.failure is not None
        await create(broker)
        successor = the_partition(broker)
        await alter(broker, "log.cleaner.io.max.bytes.per.second", "1000000000")
        await fill(broker, successor, rounds=30)
        before = latest(successor.log)
        await cleaned(broker, successor)
        assert latest(successor.log) == before
        assert broker.directory.health.failure is None
        assert not broker.cleaner.uncleanable

    run(tmp_path, scenario, settings)
    assert "t-0: cleaning aborted: the partition was deleted" in [each.message for each in caplog.records]
    assert [each for each in caplog.records if each.levelno > logging.INFO and each.name != "asyncio"] == []


def test_a_killed_cleaner_process_is_replaced_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After the second kill the log is uncleanable; it is unchanged, and accepts writes."""

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        before = found(partition.log)
        first = await stopped(broker)
        os.kill(first, signal.SIGKILL)
        await until(lambda: worker_of(broker) not in (None, first))
        os.kill(await stopped(broker), signal.SIGKILL)
        await until(lambda: T in broker.cleaner.uncleanable)
        assert found(partition.log) == before
        assert partition.log.cleaning is None
        assert "cleaned" not in endings(partition.log)
        partition.append([(b"key-1", b"new")], 1)
        assert partition.online
        assert broker.cleaner.uncleanable_bytes() == sum(each.size for each in partition.log.segments[:-1])

    run(tmp_path, scenario, PROCESS | {"log.cleaner.backoff.ms": "200"})
    messages = [record.message for record in caplog.records if record.name == "konvene.cleaner"]
    assert len(messages) == 2
    assert messages[0].endswith("ended; the cleaning will be retried")
    assert messages[1].startswith("t-0 is uncleanable from now on: cleaner process ")


def test_a_stopped_broker_leaves_no_cleaner_process(tmp_path: Path) -> None:
    """A running broker also ends the process when there is nothing left to clean."""
    pids = []

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await until(lambda: worker_of(broker) is not None)
        done = worker_of(broker)
        assert done is not None
        await cleaned(broker, partition)
        await until(lambda: not is_running(done))
        await fill(broker, partition)
        pids.append(await stopped(broker))

    run(tmp_path, scenario, PROCESS)
    assert not is_running(pids[0])


def test_logs_are_cleaned_in_slices_if_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure to start a process is logged once."""
    monkeypatch.setattr(cleaner_executor.sys, "executable", "/nowhere/python")

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        await cleaned(broker, partition)

    run(tmp_path, scenario, PROCESS)
    assert [each.message for each in caplog.records if each.name == "konvene.cleaner"] == [
        "cannot start a process, logs are cleaned in the broker's process: "
        "[Errno 2] No such file or directory: '/nowhere/python'"
    ]
