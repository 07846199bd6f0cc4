"""A `konvene` command in a process whose standard input and standard error are a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

TIMEOUT_S = 60
CTRL_D = "\x04"


class Terminal:
    """A running command. `screen` has what it has written to the terminal, with the echo of typed text."""

    def __init__(self, process: subprocess.Popen[str], descriptor: int) -> None:
        self.process = process
        self.screen = ""
        self._matched = 0
        self._descriptor = descriptor

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C in a shell."""
        self.process.send_signal(2)

    def wait_for(self, text: str) -> None:
        """Read until `text` appears after the previous match."""
        while text not in self.screen[self._matched :]:
            assert self._read(), f"no {text!r}: {self.screen!r}"
        self._matched = self.screen.index(text, self._matched) + len(text)

    def wait(self) -> int:
        """Read to the end of the output, and return the exit code of the command."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self) -> bool:
        """Wait for output; return False once the command has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while not select.select([self._descriptor], [], [], 0.1)[0]:
            assert time.monotonic() < deadline, f"no output: {self.screen!r}"
            if self.process.poll() is not None and not select.select([self._descriptor], [], [], 0)[0]:
                return False
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError:  # Linux: the other end is closed.
            return False
        self.screen += data.decode().replace("\r\n", "\n")
        return bool(data)


@contextlib.contextmanager
def terminal(*args: str, stdout: bool = False) -> Iterator[Terminal]:
    """Run `konvene` with these arguments in a terminal; with `stdout`, its standard output is one as well."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "konvene", *args]
    try:
        out = theirs if stdout else subprocess.PIPE
        with subprocess.Popen(command, stdin=theirs, stdout=out, stderr=theirs, text=True) as process:
            os.close(theirs)
            theirs = -1
            try:
                yield Terminal(process, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
