"""`konvene serve --metrics-port`: the startup line, a port in use, a missing library."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from konvene.broker.metrics.server import MetricsServer

SERVE = [sys.executable, "-m", "konvene", "serve", "--port", "0", "--ephemeral"]


@pytest.mark.parametrize("option", [["--metrics-port", "0"], ["--set", "konvene.metrics.port=0"]])
def test_startup_line_has_the_metrics_address(option: list[str]) -> None:
    """With the option or the setting; otherwise it has none. The broker stops as usual."""
    with subprocess.Popen(
        [*SERVE, *option], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            found = re.search(r" s, metrics at (http://localhost:\d+/metrics)$", broker.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(found[1], timeout=10) as page:
                assert b"\nkonvene_connections 0.0\n" in page.read()
        finally:
            broker.send_signal(signal.SIGTERM)
        assert broker.wait(20) == 0


def test_metrics_port_in_use_is_an_error(tmp_path: Path) -> None:
    """The broker does not start without the requested metrics, and leaves no data directory."""
    without_storage = [each for each in SERVE if each != "--ephemeral"]
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        done = subprocess.run(
            [*without_storage, "--data-dir", str(tmp_path / "data"), "--metrics-port", str(port)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        f"konvene: cannot serve metrics on localhost:{port}: Address already in use"
        " (choose another port with --metrics-port)\n"
    )
    assert not (tmp_path / "data").exists()


WITHOUT_LIBRARY = """
import sys
sys.modules["prometheus_client"] = None
from konvene.cli import main
main()
"""


def test_health_needs_no_library() -> None:
    """Without prometheus-client the broker starts with a warning, and `/metrics` names what to install."""
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_LIBRARY, *SERVE[3:], "--metrics-port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as broker:  # fmt: skip
        try:
            assert broker.stdout is not None
            found = re.search(r" s, metrics at (http://localhost:\d+)/metrics$", broker.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(f"{found[1]}/health/ready", timeout=10) as response:
                assert json.load(response) == {"status": "ready"}
            with pytest.raises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(f"{found[1]}/metrics", timeout=10)
            needed = "metrics need prometheus-client, which is not installed here"
            assert raised.value.status == 501
            assert raised.value.read().decode() == f"{needed} (pip install prometheus-client)\n"
        finally:
            broker.send_signal(signal.SIGTERM)
            _, errors = broker.communicate(timeout=60)
        assert broker.returncode == 0
        assert f"WARNING konvene: {needed} " in errors


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", "localhost"), ("", "localhost"), ("::1", "[::1]"), ("0.0.0.0", "0.0.0.0")],
)
def test_metrics_url_brackets_ipv6_hosts(host: str, expected: str) -> None:
    """IPv6 stands in brackets."""
    server = MetricsServer(None, None, None)  # type: ignore[arg-type]
    server._host, server.port = host, 9404
    assert server.url == f"http://{expected}:9404/metrics"
