"""The kernel syncs what threads did: the same is durable, the same fails, and where it cannot, threads do."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.broker.storage import kernel_sync
from konvene.broker.storage.disk_threads import DiskThreads
from konvene.broker.storage.kernel_sync import KernelSync
from konvene.log.config import LogConfig
from konvene.log.disk.files import RealDisk
from konvene.log.errors import LogOffline
from konvene.log.opening import open_log
from konvene.log.partition import PartitionLog

CONFIG = LogConfig(segment_bytes=400)


def the_log(path: Path) -> PartitionLog:
    """A log with a record, durable, so that its next sync is that of one file."""
    log, _ = open_log(RealDisk(), str(path / "t-0"), CONFIG, clean=True, now_ms=0)
    write(log)
    log.sync()
    return log


def write(log: PartitionLog) -> int:
    return log.append_built([(b"k", b"v")], 0, 1).last_offset + 1


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(1)
    yield made
    made.shutdown()


def uses_kernel(threads: DiskThreads) -> KernelSync:
    """The kernel's own; skips loudly where this machine has none."""
    if threads._kernel is None:
        pytest.skip("this system does not let us use its asynchronous I/O: threads wait for the disk here")
    return threads._kernel


def test_what_was_written_before_is_durable_and_what_came_since_is_not(
    tmp_path: Path, threads: DiskThreads
) -> None:
    async def main() -> None:
        log = the_log(tmp_path)
        end = write(log)
        waiting = threads.sync(log)
        kernel = uses_kernel(threads)
        assert len(kernel._pending) == 1
        write(log)
        assert await waiting == log.synced_offset == end
        assert (await threads.sync(log), kernel._pending) == (log.end_offset, {})
        threads.shutdown()

    asyncio.run(main())


def test_many_logs_at_a_time_and_none_is_taken_for_another(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        logs = [the_log(tmp_path / str(number)) for number in range(40)]
        for round_ in range(5):
            ends = [write(log) for log in logs[round_:]]
            assert await asyncio.gather(*map(threads.sync, logs[round_:])) == ends
            assert [log.synced_offset for log in logs[round_:]] == ends
        threads.shutdown()

    asyncio.run(main())


def test_a_log_with_more_to_do_is_synced_as_ever(tmp_path: Path, threads: DiskThreads) -> None:
    """A finished segment has its indexes written, a new one its name."""

    async def main() -> None:
        log = the_log(tmp_path)
        while len(log.segments) < 3:
            write(log)
        await threads.sync(log)
        assert (log.synced_offset, log._unsynced, log._made) == (log.end_offset, [], False)
        assert len(list((tmp_path / "t-0").glob("*.index"))) == 2
        threads.shutdown()

    asyncio.run(main())


def test_a_segment_that_is_finished_meanwhile_is_not_forgotten(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        log = the_log(tmp_path)
        write(log)
        waiting = threads.sync(log)
        while len(log.segments) < 2:
            write(log)
        assert await waiting < log.end_offset
        assert log._unsynced
        assert await threads.sync(log) == log.end_offset
        assert not log._unsynced
        threads.shutdown()

    asyncio.run(main())


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails_takes_the_directory_out_of_use(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def submit(self: KernelSync, descriptor: int, told: Any) -> bool:
        asyncio.get_running_loop().call_soon(told, OSError(code, os.strerror(code)))
        return True

    async def main() -> None:
        log = the_log(tmp_path)
        await threads.sync(log)
        uses_kernel(threads)
        monkeypatch.setattr(KernelSync, "submit", submit)
        durable = log.synced_offset
        write(log)
        with pytest.raises(LogOffline, match=os.strerror(code)):
            await threads.sync(log)
        assert log.synced_offset == durable
        with pytest.raises(LogOffline):
            await threads.sync(log)
        threads.shutdown()

    asyncio.run(main())


def test_a_descriptor_that_is_none_is_told_as_an_error(tmp_path: Path) -> None:
    """At once, and then a thread says what is the matter; never as if it had been synced."""

    async def main() -> None:
        kernel = KernelSync.make(asyncio.get_running_loop())
        if kernel is None:
            pytest.skip("this system does not let us use its asynchronous I/O")
        told: list[OSError | None] = []
        descriptor = os.open(tmp_path / "gone", os.O_RDWR | os.O_CREAT)
        os.close(descriptor)
        assert not kernel.submit(descriptor, told.append)
        reads, writes = os.pipe()
        begun = kernel.submit(writes, told.append)
        kernel.close()
        assert [error.errno for error in told if error] == ([errno.EINVAL] if begun else [])
        os.close(reads)
        os.close(writes)

    asyncio.run(main())


def test_whoever_closes_waits_for_what_is_under_way(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        log = the_log(tmp_path)
        end = write(log)
        waiting = threads.sync(log)
        uses_kernel(threads)
        log.close(clean=False)
        threads.shutdown()
        assert waiting.result() == end

    asyncio.run(main())


def test_where_there_is_no_such_thing_a_thread_waits(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_sync, "_SYSTEM_CALLS", {})

    async def main() -> None:
        log = the_log(tmp_path)
        end = write(log)
        assert (await threads.sync(log), threads._kernel) == (end, None)
        threads.shutdown()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_more_than_the_kernel_takes_are_synced_by_threads(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelSync, "submit", lambda *_: False)

    async def main() -> None:
        log = the_log(tmp_path)
        end = write(log)
        assert await threads.sync(log) == end
        assert log.active_segment.file.begin_sync() is not None
        log.active_segment.file.end_sync()
        threads.shutdown()

    asyncio.run(main())
