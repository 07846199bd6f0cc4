"""The broker of this folder, which looks often for transactions that take too long, and who reads from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, fleet_of, meet_the_coordinator
from ..conftest import a_running_broker, java_is_missing
from .readers import Readers

SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of this folder that leave it standing."""
    with a_running_broker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with a_running_broker(tmp_path / "broker", SETTINGS, kill=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def shared_fleet(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("clients")) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def admin(shared_fleet: Fleet) -> Client:
    """Java's where there is one: only it can ask about transactions."""
    library = "kafka-python" if java_is_missing() else "java"
    admin = shared_fleet.admin(library, "admin")
    meet_the_coordinator(admin)
    return admin


@pytest.fixture(scope="session")
def readers(shared_fleet: Fleet, admin: Client) -> Readers:
    """Readers of the topic `ledger`, started before its first record."""
    return Readers(shared_fleet, admin)
