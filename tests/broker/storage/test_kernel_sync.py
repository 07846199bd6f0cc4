"""Syncs by the kernel behave as those by threads, which are used where the kernel cannot."""

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


def synced_log(path: Path) -> PartitionLog:
    """Return a log with one durable record, so that its next sync is that of one file."""
    log, _ = open_log(RealDisk(), str(path / "t-0"), CONFIG, clean=True, now_ms=0)
    write(log)
    log.sync()
    return log


def write(log: PartitionLog) -> int:
    return log.append_built([(b"k", b"v")], 0, 1).last_offset + 1


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    disk_threads = DiskThreads(1)
    yield disk_threads
    disk_threads.shutdown()


def kernel_of(threads: DiskThreads) -> KernelSync:
    """Return the kernel's syncs; skip the test if this machine has none."""
    if threads._kernel is None:
        pytest.skip("this system does not let us use its asynchronous I/O: threads wait for the disk here")
    return threads._kernel


def test_a_sync_covers_exactly_what_was_written_before_it(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        log = synced_log(tmp_path)
        end = write(log)
        waiting = threads.sync(log)
        kernel = kernel_of(threads)
        assert len(kernel._pending) == 1
        write(log)
        assert await waiting == log.synced_offset == end
        assert (await threads.sync(log), kernel._pending) == (log.end_offset, {})
        threads.shutdown()

    asyncio.run(main())


def test_concurrent_syncs_of_many_logs(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        logs = [synced_log(tmp_path / str(number)) for number in range(40)]
        for first in range(5):
            ends = [write(log) for log in logs[first:]]
            assert await asyncio.gather(*map(threads.sync, logs[first:])) == ends
            assert [log.synced_offset for log in logs[first:]] == ends
        threads.shutdown()

    asyncio.run(main())


def test_a_log_with_finished_segments_is_synced_by_a_thread(tmp_path: Path, threads: DiskThreads) -> None:
    """The indexes of finished segments are written, and the directory is synced."""

    async def main() -> None:
        log = synced_log(tmp_path)
        while len(log.segments) < 3:
            write(log)
        await threads.sync(log)
        assert (log.synced_offset, log._unsynced, log._directory_unsynced) == (log.end_offset, [], False)
        assert len(list((tmp_path / "t-0").glob("*.index"))) == 2
        threads.shutdown()

    asyncio.run(main())


def test_a_segment_that_is_finished_during_a_sync_is_synced_next(
    tmp_path: Path, threads: DiskThreads
) -> None:
    async def main() -> None:
        log = synced_log(tmp_path)
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
def test_a_failed_sync_takes_the_directory_offline(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def submit(self: KernelSync, descriptor: int, on_synced: Any) -> bool:
        asyncio.get_running_loop().call_soon(on_synced, OSError(code, os.strerror(code)))
        return True

    async def main() -> None:
        log = synced_log(tmp_path)
        await threads.sync(log)
        kernel_of(threads)
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


def test_an_invalid_descriptor_is_an_error(tmp_path: Path) -> None:
    """The submission or the completion fails; it never counts as synced."""

    async def main() -> None:
        kernel = KernelSync.make(asyncio.get_running_loop())
        if kernel is None:
            pytest.skip("this system does not let us use its asynchronous I/O")
        results: list[OSError | None] = []
        descriptor = os.open(tmp_path / "closed", os.O_RDWR | os.O_CREAT)
        os.close(descriptor)
        assert not kernel.submit(descriptor, results.append)
        reads, writes = os.pipe()
        begun = kernel.submit(writes, results.append)
        kernel.close()
        assert [error.errno for error in results if error] == ([errno.EINVAL] if begun else [])
        os.close(reads)
        os.close(writes)

    asyncio.run(main())


def test_a_shutdown_waits_for_pending_syncs(tmp_path: Path, threads: DiskThreads) -> None:
    async def main() -> None:
        log = synced_log(tmp_path)
        end = write(log)
        waiting = threads.sync(log)
        kernel_of(threads)
        log.close(clean=False)
        threads.shutdown()
        assert waiting.result() == end

    asyncio.run(main())


def test_a_thread_syncs_where_the_system_has_no_asynchronous_io(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_sync, "_SYSTEM_CALLS", {})

    async def main() -> None:
        log = synced_log(tmp_path)
        end = write(log)
        assert (await threads.sync(log), threads._kernel) == (end, None)
        threads.shutdown()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_syncs_that_the_kernel_rejects_run_in_threads(
    tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelSync, "submit", lambda *_: False)

    async def main() -> None:
        log = synced_log(tmp_path)
        end = write(log)
        assert await threads.sync(log) == end
        assert log.active_segment.file.begin_sync() is not None
        log.active_segment.file.end_sync()
        threads.shutdown()

    asyncio.run(main())
