"""The address of a broker that is starting."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from konvene.broker import app, port_check
from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.net.listener import Listener


def test_address_is_advertised_before_the_broker_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may connect to the first of several addresses before the broker listens on the others.

    A start that fails leaves the handlers of signals as they were."""
    advertised: list[tuple[str, int]] = []
    catalogues: list[ClusterCatalogue] = []

    class RecordingCatalogue(ClusterCatalogue):
        def __init__(self, *services: Any) -> None:
            super().__init__(*services)
            catalogues.append(self)

    async def listen(self: Listener, host: str, port: int) -> None:
        advertised.append(catalogues[0].advertised)
        raise OSError("stop the start here")

    handlers = [signal.getsignal(number) for number in app.STOP_SIGNALS]
    monkeypatch.setattr(Listener, "listen", listen)
    monkeypatch.setattr("konvene.broker.broker.ClusterCatalogue", RecordingCatalogue)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        assert app.serve(app.ServeOptions("localhost", port, ephemeral=True)) == 1
    finally:
        gc.enable()
    assert advertised == [("localhost", port)]
    assert [signal.getsignal(number) for number in app.STOP_SIGNALS] == handlers


def test_port_in_use_leaves_no_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            assert app.serve(app.ServeOptions(host, port, tmp_path / "data" / "new")) == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"konvene: cannot listen on {host}:{port}: Address already in use (")
            assert "--port" in line
    assert list(tmp_path.iterdir()) == []


def test_reserved_port_leaves_no_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReservedPorts(socket.socket):
        def bind(self, address: Any) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(port_check.socket, "socket", ReservedPorts)
    assert app.serve(app.ServeOptions("127.0.0.1", 80, tmp_path / "data")) == 1
    assert "cannot listen on 127.0.0.1:80: Permission denied (" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
