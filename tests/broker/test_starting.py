"""What clients hear of a broker while it is starting."""

from __future__ import annotations

import gc

import pytest

from konvene.broker import app
from konvene.broker.net.listener import Listener


def test_who_is_quick_is_told_where_the_broker_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has waited for the broker to come back may ask as soon as the first of its addresses is
    listened at, while others are still to come."""
    told = []

    async def listens(self: Listener, host: str, port: int) -> None:
        told.append(self._broker.advertised)
        raise OSError("enough was seen")

    monkeypatch.setattr(Listener, "listen", listens)
    try:
        assert app.serve("localhost", 19_092, ephemeral=True) == 1
    finally:
        gc.enable()
    assert told == [("localhost", 19_092)]
