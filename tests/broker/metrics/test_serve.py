"""`konvene serve --metrics-port`: the startup line, a port in use, a missing library."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from konvene.broker.app import ServeOptions, serve
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


def test_metrics_port_in_use_is_an_error() -> None:
    """The broker does not start without the requested metrics."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        done = subprocess.run(
            [*SERVE, "--metrics-port", str(port)], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert f"konvene: cannot serve metrics on localhost:{port}: " in done.stderr
    assert "choose another port with --metrics-port" in done.stderr


def test_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, with what to install; nothing has started."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert serve(ServeOptions(port=0, data_dir=tmp_path, metrics_port=0)) == 1
    error = capsys.readouterr().err
    needed = "metrics need prometheus-client, which is not installed here"
    assert error == f"konvene: {needed} (pip install 'konvene[metrics]')\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", "localhost"), ("", "localhost"), ("::1", "[::1]"), ("0.0.0.0", "0.0.0.0")],
)
def test_metrics_url_brackets_ipv6_hosts(host: str, expected: str) -> None:
    """IPv6 stands in brackets."""
    server = MetricsServer(None, None)  # type: ignore[arg-type]
    server._host, server.port = host, 9404
    assert server.url == f"http://{expected}:9404/metrics"
