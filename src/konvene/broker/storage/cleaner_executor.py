"""The two ways in which a cleaning is done: step by step in the broker, or in a process of its own.

Both run the same `clean`, and tell the same of it. The steps are for small logs, and for disks that are no
real ones: a step takes two milliseconds, is taken by a thread of the disk (a simulator's takes simulated
time), and between two of them the event loop answers. A process takes no time of the loop, but it has to be
started; it is the way for all else. Which way is taken is decided in `cleaning`.
"""

from __future__ import annotations

import asyncio
import contextlib
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

__all__ = ["CleanerExecutor", "InSlices", "NoProcess", "WorkerLost", "WorkerProcess", "can_have_processes"]

MODULE = "konvene.log.cleaner.worker"
LONGEST_LINE = 1 << 26
ENDS_WITHIN_S = 5.0


class WorkerLost(Exception):
    """The process is gone in the middle of a cleaning."""


class NoProcess(Exception):
    """The system does not let this process start another one."""


class CleanerExecutor(Protocol):
    """How cleanings are done, one after the other."""

    async def begin(self, task: CleaningTask) -> None:
        """The next cleaning. Raises `NoProcess`."""

    async def told(self) -> CleanerResult:
        """What it tells next, its `CleanerStats` last. Raises what it failed with: OSError, `DamagedLog`,
        …"""

    async def give_up(self) -> None:
        """Nobody works on it any more when this returns, however it was going."""

    async def pause(self, seconds: float) -> None:
        """Let it do nothing for so long. May return before."""

    def abort(self) -> None:
        """Do not go on with what is being cleaned."""

    async def end(self) -> None:
        """There is nothing more to clean."""


class InSlices:
    """A step at a time, by the threads of the disk."""

    def __init__(self, disk: Disk, threads: DiskThreads, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._threads = threads
        self._loop = loop
        self._aborted = asyncio.Event()
        self._stepping: _Stepping | None = None

    def __repr__(self) -> str:
        return "<cleans in slices>"

    async def begin(self, task: CleaningTask) -> None:
        self._stepping = _Stepping(clean(self._disk, task, clock=self._loop.time))

    async def told(self) -> CleanerResult:
        assert self._stepping is not None
        told: CleanerResult = await self._threads.run(self._stepping.step)
        return told

    async def give_up(self) -> None:
        if self._stepping is not None:
            await self._threads.run(self._stepping.close)

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._aborted.wait()

    def abort(self) -> None:
        """Pause no more. Between two steps it is asked whether to go on."""
        self._aborted.set()

    async def end(self) -> None:
        """Nothing was started."""


class _Stepping:
    """A generator that may be closed while another thread takes a step: after that step."""

    def __init__(self, steps: Generator[CleanerProgress | CleanedSegment, None, CleanerStats]) -> None:
        self._steps = steps
        self._guard = threading.Lock()

    def step(self) -> CleanerResult:
        with self._guard:
            try:
                return next(self._steps)
            except StopIteration as end:
                stats: CleanerStats = end.value
                return stats

    def close(self) -> None:
        with self._guard:
            self._steps.close()


class WorkerProcess:
    """A process that cleans; started for the first cleaning, and again if it was lost."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<cleans in process {self.pid}>"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def begin(self, task: CleaningTask) -> None:
        process = await self._started()
        assert process.stdin is not None
        process.stdin.write(encode_line(task))

    async def told(self) -> CleanerResult:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerLost(f"process {process.pid} is gone")
        return decode_result(line)

    async def _started(self) -> asyncio.subprocess.Process:
        """The process. Raises `NoProcess`."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        starting = self._loop.create_task(
            asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", MODULE, str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE,
            )
        )  # fmt: skip
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._process = await starting  # So that there is something to end.
            raise
        except OSError as error:
            raise NoProcess(str(error)) from error
        return self._process

    async def pause(self, seconds: float) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.write(encode_line(Pause(self._loop.time() + seconds)))

    def abort(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def give_up(self) -> None:
        self.abort()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.communicate()  # Its pipes end as well.
            self._process = None

    async def end(self) -> None:
        """Let it end by itself, for it has nothing to do; soon, or be ended."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDS_WITHIN_S):
                    await process.wait()
        await self.give_up()


def can_have_processes() -> bool:
    """Whether it is known how to start this Python again."""
    return bool(sys.executable)
