"""Runs work that waits for the disk outside of the event loop: in the kernel if possible, or in threads.

The standard library's executors do the same, but need a second future, a condition and several thread
switches per job. Syncs are so short and so frequent that this took a considerable part of the CPU. If a job
only syncs a file, the kernel does it at even less cost (`kernel_sync`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from konvene.broker.storage.kernel_sync import KernelSync
from konvene.log.disk import syncing
from konvene.log.partition import PartitionLog

T = TypeVar("T")

Job = tuple[Callable[[], object], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class DiskThreads:
    """A fixed number of threads that run jobs in the order in which they were submitted."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._count = count
        self._kernel: KernelSync | None = None
        self._kernel_requested = not count  # A subclass without threads has no real disk.

    def __repr__(self) -> str:
        return f"<{len(self._threads)} disk threads>"

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` in a thread; return a future of its result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if not self._threads:
            self._start()
        self._jobs.put((work, done, loop))
        return done

    def sync(self, log: PartitionLog) -> asyncio.Future[int]:
        """Sync a log, in the kernel if possible, else in a thread; return a future of `log.sync()`."""
        loop = asyncio.get_running_loop()
        if not self._kernel_requested:
            self._kernel_requested = True
            self._kernel = KernelSync.make(loop)
        kernel = self._kernel
        begun = None if kernel is None else syncing.begin_sync(log)
        if kernel is None or begun is None:
            return self.run(log.sync)
        done: asyncio.Future[int] = loop.create_future()

        def on_synced(error: OSError | None) -> None:
            try:
                result, failure = syncing.finish_sync(log, begun, error), None
            except BaseException as raised:
                result, failure = None, raised
            resolve_future(done, result, failure)

        if kernel.submit(begun.descriptor, on_synced):
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
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(resolve_future, done, result, error)

    def shutdown(self, *, wait: bool = True) -> None:
        """Stop the threads when they have finished the submitted jobs; with `wait`, return only then."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads if wait else ():
            thread.join()
        self._threads = []


def resolve_future(done: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    """Complete a future with an error or, if that is None, with a result; ignore a cancelled future."""
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
