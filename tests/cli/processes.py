"""Run `konvene serve` in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest


class ServeProcess:
    """A broker process started by `konvene serve`, with its address."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "konvene", "serve", "--host", "127.0.0.1", "--port", "0", *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        output = []
        for line in self.process.stdout:
            output.append(line)
            match = re.search(r"listens on (\S+?:\d+)", line)
            if match:
                self.address = match[1]
                return
        pytest.fail("the broker did not start:\n" + "".join(output))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode
