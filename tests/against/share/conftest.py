"""The broker of this folder, whose groups may have short locks, and members that tests hire for a while."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, fleet_of, meet_the_coordinator
from ..conftest import a_running_broker
from .queues import Crew, Queue

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
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
    meet_the_coordinator(shared_fleet.admin("kafka-python", "first"))
    return shared_fleet.admin("confluent-kafka", "admin")


@pytest.fixture(scope="session")
def java_admin(shared_fleet: Fleet, admin: Client) -> Client:
    """Only Java's knows of share groups."""
    return shared_fleet.admin("java", "java-admin")


@pytest.fixture(scope="session")
def writer(shared_fleet: Fleet) -> Client:
    return shared_fleet.producer("confluent-kafka", "writer")


@pytest.fixture(scope="session")
def shared_crew(shared_fleet: Fleet) -> Crew:
    """The processes of all members: a JVM is slow to start, so each is a member of many groups in turn."""
    return Crew(shared_fleet)


@pytest.fixture
def crew(shared_crew: Crew) -> Iterator[Crew]:
    yield shared_crew
    shared_crew.rest()


_numbers = itertools.count(1)


@pytest.fixture
def queue(admin: Client, writer: Client, crew: Crew) -> Queue:
    """A topic of one partition and a group of this test's own, which begins at the topic's beginning."""
    return Queue(admin, writer, crew, f"queue-{next(_numbers)}")
