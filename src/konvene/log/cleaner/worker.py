"""A process that cleans logs beside a broker: `python -P -m konvene.log.cleaner.worker`.

It reads tasks from its standard input and tells on its standard output how they go (`lines`). It knows
batches and files, no broker and no topic, and decides nothing: what it leaves are `.cleaned` files, which
nobody sees before the broker has put them in place.

It is nicer than the broker, which has to answer. It ends when its input does, and on Linux the system ends
it with the thread that started it: nobody may write to a folder that another broker has opened meanwhile.
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
from konvene.log.cleaner.contract import Group, Progress, Stats, Task
from konvene.log.cleaner.worker_protocol import Pause, Told, line_of, read_order
from konvene.log.disk.files import RealDisk

__all__ = ["BACKLOG_BYTES", "Orders", "main"]

NICENESS = 10
BACKLOG_BYTES = 1 << 20
"""So much is done before it is told again."""
MOST_FILES = 64
_PR_SET_PDEATHSIG = 1


class Orders:
    """What the broker says, on a pipe of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []
        self.ended = False

    def __repr__(self) -> str:
        return f"<orders, {'ended' if self.ended else f'{len(self._lines)} wait'}>"

    def next(self) -> Task | Pause | None:
        """The next one, waited for; None when there are no more."""
        while not self._lines and not self.ended:
            self._read()
        return read_order(self._lines.pop(0)) if self._lines else None

    def waiting(self) -> Task | Pause | None:
        """The next one, if it is there."""
        while not self._lines and not self.ended and select.select([self._descriptor], [], [], 0)[0]:
            self._read()
        return read_order(self._lines.pop(0)) if self._lines else None

    def _read(self) -> None:
        came = os.read(self._descriptor, 1 << 16)
        if not came:
            self.ended = True
            return
        first, *rest = came.split(b"\n")
        self._parts.append(first)
        for part in rest:
            self._lines.append(b"".join(self._parts))
            self._parts = [part]


class Teller:
    """What is told to the broker: each step would be a line, and most of them say little."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = self._written = 0

    def __repr__(self) -> str:
        return f"<{self._read + self._written} bytes not told yet>"

    def tell(self, said: Told | BaseException) -> None:
        if isinstance(said, Progress):
            self._read += said.bytes_read
            self._written += said.bytes_written
            if self._read + self._written < BACKLOG_BYTES:
                return
        elif not isinstance(said, Group | Stats):
            self._read = self._written = 0
        if self._read or self._written:
            self._write(line_of(Progress(self._read, self._written)))
            self._read = self._written = 0
        if not isinstance(said, Progress):
            self._write(line_of(said))

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def main(orders: Orders, teller: Teller) -> None:
    """Do one task after the other until there are no more."""
    disk = RealDisk(MOST_FILES)
    while (order := orders.next()) is not None:
        if isinstance(order, Task):
            _carry_out(clean(disk, order, clock=time.perf_counter), orders, teller)


def _carry_out(steps: Generator[Progress | Group, None, Stats], orders: Orders, teller: Teller) -> None:
    try:
        while not orders.ended:
            teller.tell(next(steps))
            order = orders.waiting()
            if isinstance(order, Pause):
                time.sleep(max(0.0, order.until_s - time.monotonic()))
    except StopIteration as end:
        teller.tell(end.value)
    except BrokenPipeError:
        raise
    except Exception as error:
        teller.tell(error)
    finally:
        steps.close()


def _be_modest(parent: int) -> bool:
    """Take what others leave, and live no longer than who asked for it; False if that one is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's to hear.
    os.nice(NICENESS)
    return os.getppid() == parent


if __name__ == "__main__":
    if _be_modest(int(sys.argv[1])):
        try:
            main(Orders(0), Teller(1))
        except BrokenPipeError:
            sys.exit(1)
