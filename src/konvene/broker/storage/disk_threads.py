"""Who waits for the disk, so that the event loop need not: the kernel where it can, else threads.

An executor of the standard library does the same with a future of its own behind the loop's, a condition and
several handovers. A sync is so short, and there are so many of them, that this took a good part of the CPU;
and where a file is all there is to be synced, the kernel does it for even less (`kernel_sync`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from konvene.broker.storage.kernel_sync import KernelSync
from konvene.log.disk import syncing
from konvene.log.partition import PartitionLog

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class DiskThreads:
    """So many threads that do what they are given, in the order in which it came."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._count = count
        self._kernel: KernelSync | None = None
        self._asked_for_kernel = not count  # Who has no threads has a way of his own, and no real disk.

    def __repr__(self) -> str:
        return f"<{len(self._threads)} disk threads>"

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Do it; the future has what it returned or raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if not self._threads:
            self._start()
        self._jobs.put((work, done, loop))
        return done

    def sync(self, log: PartitionLog) -> asyncio.Future[Any]:
        """`log.sync()`, without a thread where that can be."""
        loop = asyncio.get_running_loop()
        if not self._asked_for_kernel:
            self._asked_for_kernel = True
            self._kernel = KernelSync.make(loop)
        kernel = self._kernel
        begun = None if kernel is None else syncing.begin_sync(log)
        if kernel is None or begun is None:
            return self.run(log.sync)
        done: asyncio.Future[Any] = loop.create_future()

        def told(error: OSError | None) -> None:
            try:
                result, failure = syncing.finish_sync(log, begun, error), None
            except BaseException as raised:
                result, failure = None, raised
            tell(done, result, failure)

        if kernel.begin(begun.descriptor, told):
            return done
        begun.file.end_sync()
        return self.run(log.sync)

    def _start(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._work, name=f"konvene-disk-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done, loop = job
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # The loop has closed, and nobody waits.
                loop.call_soon_threadsafe(tell, done, result, error)

    def shutdown(self, *, wait: bool = True) -> None:
        """Finish what was given, and end."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads if wait else ():
            thread.join()
        self._threads = []


def tell(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Let a future know."""
    if done.done():
        return  # Whoever waited was cancelled.
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
