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


def test_a_broker_serves_on_without_its_console(used_port: int) -> None:
    command = [sys.executable, "-m", "konvene", "serve", "--ephemeral", "--port", "0", "--log-format", "json"]
    with subprocess.Popen(
        [*command, f"--console-port={used_port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            lines = (json.loads(line)["message"] for line in process.stderr)
            warning = next(line for line in lines if line.startswith("the console has ended"))
            assert warning == "the console has ended (exit code 1); the broker serves on without it"
            assert process.poll() is None
        finally:
            process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
