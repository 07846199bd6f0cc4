"""The process of the console that `konvene serve --console-port` starts: its lines and its errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.console.running import DEADLINE_S

COMMAND = [sys.executable, "-m", "konvene", "console", "--bootstrap-server", "localhost:1", "--with-parent"]
"""The console starts without its cluster."""


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as used:
        yield used.getsockname()[1]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_port_in_use_names_the_option_of_the_broker(log_format: str, used_port: int) -> None:
    done = subprocess.run(
        [*COMMAND, f"--port={used_port}"], capture_output=True, text=True, stdin=subprocess.PIPE,
        timeout=DEADLINE_S, check=False, env=os.environ | {"KONVENE_LOG_FORMAT": log_format},
    )  # fmt: skip
    problem = f"cannot listen on localhost:{used_port}: Address already in use"
    hint = "Choose another port with --console-port; 0 chooses a free one."
    assert done.returncode == 1
    if log_format == "text":
        assert done.stderr == f"konvene: {problem}\n  {hint}\n"
    else:
        failed = json.loads(done.stderr)
        assert (failed["level"], failed["logger"]) == ("CRITICAL", "konvene")
        assert failed["message"] == f"{problem}. {hint}"


def test_the_startup_line_is_json_like_that_of_the_broker() -> None:
    with subprocess.Popen(
        [*COMMAND, "--port=0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"KONVENE_LOG_FORMAT": "json"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        process.communicate(timeout=DEADLINE_S)
    assert list(started)[:4] == ["timestamp", "level", "logger", "message"]
    assert started["event"] == "console-started"
    assert started["message"] == f"konvene console at {started['url']}"
