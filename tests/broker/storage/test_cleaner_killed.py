"""A broker process is killed while it cleans: its cleaner process ends, and no record is lost."""

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
"""A broker that writes and cleans; prints the synced end offset and the id of the cleaner process."""


@pytest.mark.parametrize("executor", ["slices", "process"])
def test_a_kill_at_any_time_loses_nothing(tmp_path: Path, executor: str) -> None:
    """The broker is killed four times during a cleaning, and restarted on the same directory."""
    end = 0
    for run_number in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path), executor]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as broker:
            assert broker.stdout is not None
            for _ in range(2):
                end, worker = json.loads(broker.stdout.readline())
            time.sleep(0.03 * run_number)
            broker.kill()
        if worker is not None:  # A short cleaning may end before it is seen.
            wait_for_exit(worker)

    async def scenario(broker: Broker, partition: Partition) -> None:
        check_last_records(partition, end)
        await cleaned(broker, partition)
        check_last_records(partition, end)
        assert not {"cleaned", "swap"} & endings(partition.log)

    run(tmp_path, scenario, PROCESS if executor == "process" else None)


def check_last_records(partition: Partition, end: int) -> None:
    """Check that each key has its record of the last complete round, or a later one."""
    found = latest(partition.log)
    assert len(found) == KEYS
    for key in range(KEYS):
        offset, value = found[b"key-%d" % key]
        assert offset >= end - KEYS + key
        assert offset % KEYS == key
        assert value is not None
        assert value.endswith(bytes(40))


def wait_for_exit(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_suspended_cleaner_process_ends_with_its_broker(tmp_path: Path) -> None:
    """The process is suspended with SIGSTOP, so that it cannot notice the broker's end itself."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), "process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as broker:
        assert broker.stdout is not None
        worker = None
        while worker is None or not _suspend(worker, broker.pid):
            _, worker = json.loads(broker.stdout.readline())
        broker.kill()
    wait_for_exit(worker)


def _suspend(worker: int, broker: int) -> bool:
    """Suspend a worker once it has lowered its priority, the last step of its start; False if it ended."""
    try:
        lowered = min(19, os.getpriority(os.PRIO_PROCESS, broker) + NICENESS)
        while os.getpriority(os.PRIO_PROCESS, worker) < lowered:
            time.sleep(0.001)
        os.kill(worker, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return is_running(worker)
