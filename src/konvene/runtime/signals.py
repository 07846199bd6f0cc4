"""Ctrl-C (SIGINT) in commands that compute for long, alone or with worker processes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker

__all__ = ["sigint_blocked", "stop_on_signal"]


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT during the block. Processes and threads that are started in it never receive the signal;
    this thread receives it at the end."""
    resource_tracker.ensure_running()  # When multiprocessing starts it, it unblocks SIGINT in this thread.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def stop_on_signal(stop: threading.Event) -> Iterator[None]:
    """During the block set `stop` at the first SIGINT or SIGTERM; a second one raises KeyboardInterrupt.

    Changes nothing in other threads than the main one, which receive no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
