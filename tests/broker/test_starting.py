"""What clients hear of a broker while it is starting."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from konvene.broker import app
from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.net.listener import Listener


def test_who_is_quick_is_told_where_the_broker_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has waited for the broker to come back may ask as soon as the first of its addresses is
    listened at, while others are still to come."""
    told: list[tuple[str, int]] = []
    made: list[ClusterCatalogue] = []

    class Seen(ClusterCatalogue):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    async def listens(self: Listener, host: str, port: int) -> None:
        told.append(made[0].advertised)
        raise OSError("enough was seen")

    monkeypatch.setattr(Listener, "listen", listens)
    monkeypatch.setattr("konvene.broker.broker.ClusterCatalogue", Seen)
    try:
        assert app.serve("localhost", 19_092, ephemeral=True) == 1
    finally:
        gc.enable()
    assert told == [("localhost", 19_092)]
