"""`konvene serve --log-format json`: every line that the process writes is a JSON object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.commands import call

NOISY = """
import threading, warnings

def assign(spec):
    return {}

warnings.warn("an old setting")
thread = threading.Thread(target=lambda: 1 / 0, name="noisy")
thread.start()
thread.join()
"""


def serve_command(*args: str) -> list[str]:
    return [sys.executable, "-m", "konvene", "serve", "--host", "127.0.0.1", "--port", "0", *args]


def documents(text: str) -> list[dict[str, Any]]:
    """Parse each line; all have the same first fields."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(each)[:4] == ["timestamp", "level", "logger", "message"] for each in found)
    return found


@pytest.mark.parametrize("by_variable", [False, True], ids=["option", "variable"])
def test_all_output_of_a_broker_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    """The startup line, warnings, tracebacks and rebalances, until the broker has stopped."""
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.chdir(tmp_path)
    if by_variable:
        monkeypatch.setenv("KONVENE_LOG_FORMAT", "json")
    command = serve_command(
        "--data-dir", str(tmp_path / "data"), "--assignor", "noisy:assign", "--metrics-port", "0",
        "--set", "num.replica.fetchers=3", "--set", "group.initial.rebalance.delay.ms=0",
        *([] if by_variable else ["--log-format", "json"]),
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            (started,) = documents(first)
            broker = SimpleNamespace(address=started["listener"])
            assert call(broker, "topics", "create", "--topic", "orders").code == 0
            assert call(broker, "produce", "--topic", "orders", stdin="one\n").code == 0
            consume = ("consume", "--topic", "orders", "--group", "readers", "--from-beginning")
            assert call(broker, *consume, "--client-id", "ann", "--max-messages", "1").code == 0
        finally:
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert (started["event"], started["level"], started["ephemeral"]) == ("started", "INFO", False)
    assert started["advertised"] == started["listener"]
    assert started["data_dir"] == str(tmp_path / "data")
    assert started["metrics_url"].endswith("/metrics")
    lines = documents(errors)
    warned = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert any("num.replica.fetchers" in message for message in warned)
    assert any("an old setting" in message for message in warned)
    (failed,) = [line for line in lines if "exception" in line]
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")
    joined = next(line for line in lines if line["logger"] == "konvene.rebalance")
    assert joined["message"] == "group readers generation 1: member-joined"
    assert (joined["event"], joined["group"], joined["generation"]) == ("rebalance", "readers", 1)
    assert joined["causes"][0]["client"] == "ann"


@pytest.mark.parametrize(
    ("args", "variable", "code", "message"),
    [
        (["--set", "log.dirs=/a,/b"], "", 1, "log.dirs=/a,/b: exactly one directory is supported"),
        (["--advertise", "0.0.0.0"], "", 2, "--advertise 0.0.0.0: no client can connect to 0.0.0.0"),
        ([], "info,loud", 2, "KONVENE_LOG: loud: write a level or LOGGER=LEVEL; levels are debug, info"),
    ],
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_error_is_one_line_in_each_format(
    log_format: str, args: list[str], variable: str, code: int, message: str
) -> None:
    done = subprocess.run(
        serve_command("--log-format", log_format, *args),
        env=os.environ | {"KONVENE_LOG": variable},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    if log_format == "text":
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"konvene: {message}")
    else:
        (document,) = documents(done.stderr)
        assert document["level"] == "CRITICAL"
        assert document["message"].startswith(message)


def test_levels_of_loggers(tmp_path: Path) -> None:
    """One logger is quiet, another one is not; the text format is the default."""
    command = serve_command("--data-dir", str(tmp_path), "--set", "num.replica.fetchers=3")
    environment = os.environ | {"KONVENE_LOG": "error,asyncio=debug"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("konvene ")
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "num.replica.fetchers" not in errors
