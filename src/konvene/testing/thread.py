"""An event loop in a thread of its own, which synchronous and asyncio tests can call alike."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
"""A call to a broker in the same process that takes longer is a deadlock: it raises TimeoutError."""


class LoopThread:
    """A thread that runs an event loop until `close`."""

    def __init__(self, name: str = "konvene-broker") -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<loop thread {self._thread.name}: {'closed' if self.loop.is_closed() else 'running'}>"

    @property
    def ident(self) -> int:
        return self._thread.ident or 0

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T], timeout: float = CALL_TIMEOUT_S) -> T:
        """Run a coroutine on the loop, wait for it, and return its result or raise its exception.

        Raises TimeoutError after `timeout` seconds."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the broker's own thread cannot wait for itself")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self) -> None:
        """Cancel all tasks and stop the loop and its thread."""
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            self.call(_cancel_all(), 10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=5)
    await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    return factory()
