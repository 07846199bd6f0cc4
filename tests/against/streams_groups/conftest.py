"""The broker of this folder, whose bounds on sessions and heartbeats are low, and what runs on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..brokers import Broker
from ..clients import fleet_of
from ..conftest import a_running_broker
from ..tries import own_name
from .app import Application, Stage

SETTINGS = {
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "100",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of this folder; each uses topics and groups of its own."""
    with a_running_broker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def stage(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("stage")
    with fleet_of(broker.bootstrap, directory) as fleet:
        stage = Stage(broker, fleet, directory)
        try:
            yield stage
        finally:
            stage.end()


@pytest.fixture
def app(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    """An application of this test's own; `does` sets its topology."""
    app = Application(own_name(request, 40), stage, tmp_path)
    try:
        yield app
    finally:
        app.end()
