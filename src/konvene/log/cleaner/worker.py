"""Worker process of the cleaner: `python -P -m konvene.log.cleaner.worker`.

It reads tasks from standard input and writes results to standard output (`worker_protocol`). The `.cleaned`
files that it creates have no effect until the broker swaps them in.

It runs at a lower priority than the broker. It exits when its input ends, and on Linux it is killed with the
thread that started it, so that it never writes to a folder that another broker has opened.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Generator

from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CleanedSegment, CleanerProgress, CleanerStats, CleaningTask
from konvene.log.cleaner.worker_protocol import CleanerResult, Pause, decode_command, encode_line
from konvene.log.disk.files import RealDisk

__all__ = ["BACKLOG_BYTES", "CommandReader", "main"]

NICENESS = 10
BACKLOG_BYTES = 1 << 20
"""Bytes of progress between two reports."""
MOST_FILES = 64
_PR_SET_PDEATHSIG = 1


class CommandReader:
    """A reader of the broker's commands from a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []
        self.ended = False

    def __repr__(self) -> str:
        return f"<commands, {'ended' if self.ended else f'{len(self._lines)} wait'}>"

    def next(self) -> CleaningTask | Pause | None:
        """Wait for the next command and return it; None at the end of the input."""
        while not self._lines and not self.ended:
            self._read()
        return decode_command(self._lines.pop(0)) if self._lines else None

    def poll(self) -> CleaningTask | Pause | None:
        """Return the next command if one has arrived, else None."""
        while not self._lines and not self.ended and select.select([self._descriptor], [], [], 0)[0]:
            self._read()
        return decode_command(self._lines.pop(0)) if self._lines else None

    def _read(self) -> None:
        received = os.read(self._descriptor, 1 << 16)
        if not received:
            self.ended = True
            return
        first, *rest = received.split(b"\n")
        self._parts.append(first)
        for part in rest:
            self._lines.append(b"".join(self._parts))
            self._parts = [part]


class ResultWriter:
    """A writer of results to a pipe, which combines progress reports until they cover `BACKLOG_BYTES`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = self._written = 0

    def __repr__(self) -> str:
        return f"<{self._read + self._written} bytes not reported yet>"

    def send(self, result: CleanerResult | BaseException) -> None:
        if isinstance(result, CleanerProgress):
            self._read += result.bytes_read
            self._written += result.bytes_written
            if self._read + self._written < BACKLOG_BYTES:
                return
        elif not isinstance(result, CleanedSegment | CleanerStats):
            self._read = self._written = 0
        if self._read or self._written:
            self._write(encode_line(CleanerProgress(self._read, self._written)))
            self._read = self._written = 0
        if not isinstance(result, CleanerProgress):
            self._write(encode_line(result))

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def main(commands: CommandReader, writer: ResultWriter) -> None:
    """Run each cleaning that the broker commands and send its results, until the input ends."""
    disk = RealDisk(MOST_FILES)
    while (command := commands.next()) is not None:
        if isinstance(command, CleaningTask):
            _run_task(clean(disk, command, clock=time.perf_counter), commands, writer)


def _run_task(
    steps: Generator[CleanerProgress | CleanedSegment, None, CleanerStats],
    commands: CommandReader,
    writer: ResultWriter,
) -> None:
    try:
        while not commands.ended:
            writer.send(next(steps))
            command = commands.poll()
            if isinstance(command, Pause):
                time.sleep(max(0.0, command.until_s - time.monotonic()))
    except StopIteration as end:
        writer.send(end.value)
    except BrokenPipeError:
        raise
    except Exception as error:
        writer.send(error)
    finally:
        steps.close()


def _lower_priority(parent: int) -> bool:
    """Lower the priority, and (on Linux) arrange to be killed when the parent exits.

    Returns False if the process `parent` is no longer the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker.
    os.nice(NICENESS)
    return os.getppid() == parent


if __name__ == "__main__":
    if _lower_priority(int(sys.argv[1])):
        try:
            main(CommandReader(0), ResultWriter(1))
        except BrokenPipeError:
            sys.exit(1)
