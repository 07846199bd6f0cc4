"""The two executors of cleanings: step by step in the broker, or in a process of their own.

Both run the same `clean` and return the same results. Steps are for small logs and for simulated disks: a
step takes about two milliseconds in a disk thread (simulated time in a simulator), and the event loop serves
requests between two steps. A process takes no time from the event loop, but has to be started; it is used for
all other logs. `LogCleaner` chooses the executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Generator
from typing import Protocol

from konvene.broker.storage.disk_threads import DiskThreads
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CleanedSegment, CleanerProgress, CleanerStats, CleaningTask
from konvene.log.cleaner.worker_protocol import CleanerResult, Pause, decode_result, encode_line
from konvene.log.disk.files import Disk

__all__ = [
    "CannotStartProcess",
    "CleanerExecutor",
    "SteppedCleaning",
    "WorkerLost",
    "WorkerProcess",
    "can_start_processes",
]

log = logging.getLogger("konvene.cleaner")

MODULE = "konvene.log.cleaner.worker"
MAX_LINE_BYTES = 1 << 26
EXIT_TIMEOUT_S = 5.0


class WorkerLost(Exception):
    """The worker process ended during a cleaning."""


class CannotStartProcess(Exception):
    """The system does not allow the broker to start another process."""


class CleanerExecutor(Protocol):
    """Runs one cleaning at a time, and returns its progress, cleaned segments and statistics as results."""

    async def start(self, task: CleaningTask) -> None:
        """Start a cleaning. Raises `CannotStartProcess`."""

    async def next_result(self) -> CleanerResult:
        """Wait for the next result of the cleaning and return it; the last one is `CleanerStats`.

        Raises the error of the cleaning: OSError, `DamagedLog`, `WorkerLost`."""

    async def abandon(self) -> None:
        """Stop the cleaning, and wait until no thread or process works on it."""

    async def pause(self, seconds: float) -> None:
        """Pause the cleaning; may return before the pause is over."""

    def abort(self) -> None:
        """Make the current cleaning end soon, without waiting for that."""

    async def close(self) -> None:
        """Release the executor's resources, such as its process."""


class SteppedCleaning:
    """Runs a cleaning step by step in the disk threads."""

    def __init__(self, disk: Disk, threads: DiskThreads, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._threads = threads
        self._loop = loop
        self._aborted = asyncio.Event()
        self._steps: _Steps | None = None

    def __repr__(self) -> str:
        return "<cleaning in steps>"

    async def start(self, task: CleaningTask) -> None:
        self._steps = _Steps(clean(self._disk, task, clock=self._loop.time))

    async def next_result(self) -> CleanerResult:
        assert self._steps is not None
        return await self._threads.run(self._steps.step)

    async def abandon(self) -> None:
        if self._steps is not None:
            await self._threads.run(self._steps.close)

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._aborted.wait()

    def abort(self) -> None:
        """End a pause. `LogCleaner` checks before each step whether the cleaning may continue."""
        self._aborted.set()

    async def close(self) -> None:
        """Do nothing: there is no process."""


class _Steps:
    """A generator of cleaning steps. Closing it waits for a step that another thread is running."""

    def __init__(self, steps: Generator[CleanerProgress | CleanedSegment, None, CleanerStats]) -> None:
        self._steps = steps
        self._lock = threading.Lock()

    def step(self) -> CleanerResult:
        with self._lock:
            try:
                return next(self._steps)
            except StopIteration as end:
                stats: CleanerStats = end.value
                return stats

    def close(self) -> None:
        with self._lock:
            self._steps.close()


class WorkerProcess:
    """Runs cleanings in a worker process. The first cleaning starts it, a later one only if it ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<cleaning in process {self.pid}>"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, task: CleaningTask) -> None:
        process = await self._running_process()
        assert process.stdin is not None
        process.stdin.write(encode_line(task))

    async def next_result(self) -> CleanerResult:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            traceback = (await process.stderr.read()).decode(errors="replace").strip()
            if traceback:
                log.error("cleaner process %d: %s", process.pid, traceback)
            raise WorkerLost(f"cleaner process {process.pid} ended")
        return decode_result(line)

    async def _running_process(self) -> asyncio.subprocess.Process:
        """Return the process, starting it if necessary. Raises `CannotStartProcess`."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        starting = self._loop.create_task(
            asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", MODULE, str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, limit=MAX_LINE_BYTES,
            )
        )  # fmt: skip
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._process = await starting  # `abandon` ends it.
            raise
        except OSError as error:
            raise CannotStartProcess(str(error)) from error
        return self._process

    async def pause(self, seconds: float) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.write(encode_line(Pause(self._loop.time() + seconds)))

    def abort(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def abandon(self) -> None:
        self.abort()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.communicate()  # Waits until its pipes are closed too.
            self._process = None

    async def close(self) -> None:
        """Close the process's input, on which it exits; kill it if that takes `EXIT_TIMEOUT_S`."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_TIMEOUT_S):
                    await process.wait()
        await self.abandon()


def can_start_processes() -> bool:
    """Return True if the path of this Python interpreter is known."""
    return bool(sys.executable)
