"""A broker process that is killed while it cleans: nobody goes on without it, and its successor has all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.broker.storage.compacted import PROCESS, cleaned, endings, is_running, latest, run

from konvene.broker.broker import Broker
from konvene.broker.storage.partitions import Partition
from konvene.log.cleaner.worker import NICENESS

ROOT = Path(__file__).parents[3]
KEYS = 50
WRITER = """
import asyncio, json, sys
from pathlib import Path
from tests.broker.storage.compacted import PROCESS, SETTINGS, create, fill, the_partition, until, worker_of
from tests.broker.running import running

async def main():
    process = sys.argv[2] == "process"
    async with running(Path(sys.argv[1]), SETTINGS | (PROCESS if process else {})) as broker:
        if "t" not in broker.catalogue.topics.by_name:
            await create(broker)
        partition = the_partition(broker)
        while True:
            before = broker.cleaner.removed["t"].cleanings
            await fill(broker, partition)
            await until(lambda: worker_of(broker) or broker.cleaner.removed["t"].cleanings > before)
            print(json.dumps([partition.end_offset, worker_of(broker)]), flush=True)

asyncio.run(main())
"""
"""Writes and cleans at the same time, and says up to where all is on the disk, and which process cleans."""


@pytest.mark.parametrize("way", ["slices", "process"])
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, way: str) -> None:
    """Each life goes on from what the last one left, with a cleaning that is cut off somewhere."""
    end = 0
    for life in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path), way]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as broker:
            assert broker.stdout is not None
            for _ in range(2):
                end, worker = json.loads(broker.stdout.readline())
            time.sleep(0.03 * life)
            broker.kill()
        if worker is not None:  # Some cleanings are so short that nobody sees them.
            ends_soon(worker)

    async def story(broker: Broker, partition: Partition) -> None:
        await see(partition, end)
        await cleaned(broker, partition)
        await see(partition, end)
        assert not {"cleaned", "swap"} & endings(partition.log)

    run(tmp_path, story, PROCESS if way == "process" else None)


async def see(partition: Partition, end: int) -> None:
    """Of each key the record of the last whole round, or one that was written after it."""
    found = latest(partition.log)
    assert len(found) == KEYS
    for key in range(KEYS):
        offset, value = found[b"key-%d" % key]
        assert offset >= end - KEYS + key
        assert offset % KEYS == key
        assert value is not None
        assert value.endswith(bytes(40))


def ends_soon(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends it on Linux alone")
def test_a_process_ends_with_its_broker_whatever_it_does(tmp_path: Path) -> None:
    """Also where it is stopped, and could not see that nobody is there any more."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), "process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as broker:
        assert broker.stdout is not None
        worker = None
        while worker is None or not _stopped(worker, broker.pid):
            _, worker = json.loads(broker.stdout.readline())
        broker.kill()
    ends_soon(worker)


def _stopped(worker: int, broker: int) -> bool:
    """Stop a worker when it has lowered its priority, the last step of its start; False if it ended."""
    try:
        lowered = min(19, os.getpriority(os.PRIO_PROCESS, broker) + NICENESS)
        while os.getpriority(os.PRIO_PROCESS, worker) < lowered:
            time.sleep(0.001)
        os.kill(worker, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return is_running(worker)
