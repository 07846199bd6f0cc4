"""`konvene explain follow` with metrics and alerts, against a live broker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.commands import running_broker
from tests.cli.explain.test_explain import run
from tests.pipeline.monitoring.test_delivery import receiving

PATIENCE_S = 90.0
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


@contextlib.contextmanager
def following(*args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "konvene", "explain", "follow", *args, "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_alerts_and_metrics_of_a_live_broker(tmp_path: Path) -> None:
    """A follower that was killed repeats no alert, and reports the recovery; the command gets the same."""
    out = tmp_path / "alerts"
    with running_broker(tmp_path / "broker", QUICK) as broker, receiving(500) as received:
        broker.create("orders", 3, 1)
        broker.join("readers", ["orders"], None)
        broker.commit("batch", "orders", p0=1)
        args = [broker.address, "--warehouse", str(tmp_path / "w"), "--webhook", f"{received.url}/hook",
                "--on-alert", f"sh -c 'cat >> {out}'"]  # fmt: skip
        with following(*args, "--metrics-port", "0", "--alert-rebalances", "0/1d") as process:
            assert process.stderr is not None
            url = process.stderr.readline().removeprefix("Metrics at ").strip().removesuffix(".")
            until(lambda: len(received.requests) == 2 and out.exists() and out.read_text().endswith("\n"))
            until(lambda: 'konvene_group_lag_records{cluster="' in scraped(url))
            text = scraped(url)
            until(lambda: (tmp_path / "w" / "_alerts.json").read_text().count('"firing"') == 1)
            os.kill(process.pid, signal.SIGKILL)
        (failed, delivered) = [body for _, _, body in received.requests]
        with following(*args, "--alert-rebalances", "100/1d") as process:
            until(lambda: len(received.requests) == 3 and out.read_text().count("\n") == 2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert failed == delivered and delivered["status"] == "firing"
    assert (delivered["rule"], delivered["group"]) == ("rebalances", "readers")
    assert received.requests[2][2]["status"] == "resolved"
    assert received.requests[2][2]["since_ms"] == delivered["since_ms"]
    assert 'konvene_group_members{cluster="' in text and "konvene_explain_up" in text


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--webhook", "ftp://user:secret@host"], "a webhook is an http:// or https:// URL"),
        (["--on-alert", ""], "the command is empty"),
        (["--alert-rebalances", "often"], "write a number and a duration, such as 10/10min"),
        (["--alert-lag", "5"], "write a duration, such as 90s"),
    ],
)
def test_invalid_options(args: list[str], message: str, tmp_path: Path) -> None:
    output = run("follow", str(tmp_path), *args)
    assert output.code == 2 and message in output.err and "secret" not in output.err


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        output = run("follow", str(tmp_path), "--metrics-port", str(port), "--metrics-host", "127.0.0.1")
    assert output.code == 1 and f"metrics cannot be served at 127.0.0.1:{port}: " in output.err
