"""Lines of standard input, read while the event loop runs, with a prompt on a terminal.

A daemon thread reads, because waiting for input would block the event loop. It may still wait when the
process ends, so it reads through a buffer of its own: the interpreter closes `sys.stdin` at its exit, and
aborts if another thread holds the lock of that buffer.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import AsyncIterator
from typing import BinaryIO

import click

from konvene.cli.options import fail

__all__ = ["StandardInput"]

PROMPT = ">"
"""The prompt of `kafka-console-producer`."""

_MAX_BUFFERED = 10_000


class StandardInput:
    """The lines of standard input. Raises `Failure` if it is closed.

    On a terminal each line has a prompt, on standard error, unless that is redirected."""

    def __init__(self) -> None:
        if sys.stdin is None:
            fail("standard input is closed", "Redirect it: echo hello | konvene produce --topic NAME")
        self.interactive = sys.stdin.isatty()
        self.count = 0
        """Number of lines that have been read, also of those that `lines` has not yielded yet."""
        self._stream = _private_stream(sys.stdin.buffer)
        self._prompts = self.interactive and sys.stderr.isatty()
        self._at_prompt = False
        self._closed = False
        self._lock = threading.Lock()

    async def lines(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield each line with its number, from 1, without the end of the line."""
        import asyncio

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        capacity = threading.Semaphore(_MAX_BUFFERED)

        def read() -> None:
            try:
                while line := self._next_line():
                    self.count += 1
                    capacity.acquire()
                    loop.call_soon_threadsafe(queue.put_nowait, (self.count, line))
                loop.call_soon_threadsafe(queue.put_nowait, None)
            except RuntimeError:
                pass  # The loop ended before the input did.

        threading.Thread(target=read, name="standard-input", daemon=True).start()
        while (item := await queue.get()) is not None:
            capacity.release()
            yield item[0], item[1].rstrip(b"\n").removesuffix(b"\r")

    def _next_line(self) -> bytes:
        with self._lock:
            if self._prompts and not self._closed:
                click.echo(PROMPT, nl=False, err=True)
                self._at_prompt = True
        line = self._stream.readline()
        if line:
            self._at_prompt = False  # The terminal shows the end of the line.
        return line

    def close(self) -> None:
        """Prompt no more, and move the cursor of the terminal from the last prompt to a new line."""
        with self._lock:
            self._closed = True
            if self._at_prompt:
                click.echo(err=True)
                self._at_prompt = False


def _private_stream(stream: BinaryIO) -> BinaryIO:
    """Return another stream for the same file descriptor; the given one if it has none, as in tests."""
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        return stream
