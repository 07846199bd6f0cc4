"""The advertised address of a broker that is starting."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from konvene.broker import app
from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.net.listener import Listener


def test_address_is_advertised_before_the_broker_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may connect to the first of several addresses before the broker listens on the others."""
    advertised: list[tuple[str, int]] = []
    catalogues: list[ClusterCatalogue] = []

    class RecordingCatalogue(ClusterCatalogue):
        def __init__(self, *services: Any) -> None:
            super().__init__(*services)
            catalogues.append(self)

    async def listen(self: Listener, host: str, port: int) -> None:
        advertised.append(catalogues[0].advertised)
        raise OSError("stop the start here")

    monkeypatch.setattr(Listener, "listen", listen)
    monkeypatch.setattr("konvene.broker.broker.ClusterCatalogue", RecordingCatalogue)
    try:
        assert app.serve(app.ServeOptions("localhost", 19_092, ephemeral=True)) == 1
    finally:
        gc.enable()
    assert advertised == [("localhost", 19_092)]
