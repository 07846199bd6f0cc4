"""The broker of this folder, whose bounds on sessions and heartbeats are low, and groups that work on it."""

from collections.abc import Iterator

import pytest

from ..brokers import Broker
from ..clients import Fleet, fleet_of
from ..conftest import Admins, a_running_broker
from ..tries import own_name
from .group import CONFLUENT, KAFKA_PYTHON, Group
from .moves import Moves, play

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of this folder; each uses topics and groups of its own."""
    with a_running_broker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


# The fixtures of the folder above that live as long as their broker, once more for this one.


@pytest.fixture(scope="session")
def shared_fleet(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("clients")) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def admins(shared_fleet: Fleet) -> Admins:
    return Admins(shared_fleet)


@pytest.fixture
def group(fleet: Fleet, admins: Admins, broker: Broker, request: pytest.FixtureRequest) -> Group:
    """A group of this test's own; its topic is made by `has`."""
    return Group(own_name(request), fleet, admins, broker)


@pytest.fixture(scope="module")
def moves(broker: Broker, admins: Admins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moves]:
    """Each move is played once, however many tests ask about it; clients end with the module."""
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("moves")) as fleet:
        assert admins[CONFLUENT] and admins[KAFKA_PYTHON]  # started before several moves ask for them at once
        moves = Moves(lambda move, again: play(move, again, fleet, admins, broker), at_once=3)
        try:
            yield moves
        finally:
            moves.end()
