"""A broker process on a full disk, or on a directory that is read-only, missing, or locked."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.running import running

from konvene.codec import batches
from konvene.log.directory import Identity, LogDirectory
from konvene.log.disk.files import RealDisk

ROOT = Path(__file__).parents[3]
WRITER = """
import asyncio, json, sys
from pathlib import Path
from tests.broker.running import running
from konvene.broker.services import bind
from konvene.runtime.coordinator import RequestContext
from konvene.broker.handlers import produce
from konvene.codec.batches import build_simple
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

async def main():
    async with running(Path(sys.argv[1]), {"konvene.log.fsync.topics": "true"}) as broker:
        await broker.topic_creator.create_missing(["t"])
        for at in range(1000):
            batch = build_simple([(b"%d" % at, b"v" * 500)], 1_700_000_000_000)
            data = PartitionProduceData(index=0, records=batch)
            topic = TopicProduceData(name="t", partition_data=(data,))
            request = ProduceRequest(acks=-1, topic_data=(topic,))
            response = bind(produce.handle, broker.services)(request, RequestContext(api_version=9))
            if asyncio.iscoroutine(response):
                response = await response
            partition = response.responses[0].partition_responses[0]
            print(json.dumps([at, partition.error_code, partition.base_offset]), flush=True)
            if partition.error_code:
                return

asyncio.run(main())
"""
"""Writes one record per request until one is rejected; prints the error and base offset of each."""


def serve(path: Path, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected not to start."""
    command = [sys.executable, "-m", "konvene", "serve", "--port", "0", "--data-dir", str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT, preexec_fn=before
    )


def test_a_full_disk_is_reported_and_acknowledged_records_survive(tmp_path: Path) -> None:
    """RLIMIT_FSIZE cuts a write in the middle, and fails all later ones."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    command = [sys.executable, "-c", WRITER, str(tmp_path / "data")]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, preexec_fn=limit
    )
    responses = [json.loads(line) for line in run.stdout.splitlines()]
    assert [error for _, error, _ in responses] == [0] * (len(responses) - 1) + [56], run.stderr
    log_file = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    assert log_file.stat().st_size == 50_000

    async def check_log() -> None:
        async with running(tmp_path / "data") as broker:
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            found = [
                (record.offset, record.key)
                for header, view in partition.batches()
                for record in batches.records(view, header)
            ]
            assert found == [(offset, b"%d" % at) for at, error, offset in responses if not error]
            assert log_file.stat().st_size < 50_000

    asyncio.run(check_log())


def test_an_unwritable_directory_is_reported(tmp_path: Path) -> None:
    """One line names the directory and the reason, and the exit code is 1."""

    def drop_root_privileges() -> None:
        if os.geteuid() == 0:  # Drop CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
            for capability in (1, 2):
                ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)

    path = tmp_path / "data"
    path.mkdir()
    path.chmod(0o555)
    run = serve(path, drop_root_privileges)
    path.chmod(0o755)
    assert run.returncode == 1
    assert (
        run.stderr.splitlines()[-1]
        == f"konvene: cannot use {path} for data: Permission denied ({path}/.lock)"
    )
    assert run.stdout == ""


@pytest.mark.parametrize("name", ["file", "file/data"])
def test_a_path_that_is_not_a_directory_is_reported(tmp_path: Path, name: str) -> None:
    """The path, or its parent, is a file."""
    (tmp_path / "file").write_bytes(b"")
    run = serve(tmp_path / name)
    assert run.returncode != 0
    assert str(tmp_path / name) in run.stderr.replace("'", "")
    assert "Traceback" not in run.stderr


def test_a_second_broker_on_a_directory_names_the_process_that_holds_it(tmp_path: Path) -> None:
    """It exits with code 1 and changes no file."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), Identity("c", 1, "d"))
    before = sorted(path.name for path in tmp_path.iterdir())
    run = serve(tmp_path)
    assert run.returncode == 1
    holder = f"another process, {os.getpid()} (" if sys.platform == "linux" else "another process"
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"konvene: {tmp_path}/.lock is held by {holder}")
    assert last.endswith("is a broker running there?")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    directory.close()
