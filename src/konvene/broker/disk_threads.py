"""The threads that wait for the disk, so that the event loop need not.

An executor of the standard library does the same with a future of its own behind the loop's, a condition and
several handovers. A sync is so short, and there are so many of them, that this took a good part of the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class DiskThreads:
    """So many threads that do what they are given, in the order in which it came."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._count = count

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
