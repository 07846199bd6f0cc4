"""The broker under test, and clients that end with the test; see the package's docstring for the whole."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from .brokers import Broker, Unavailable, chosen
from .clients import Client, Fleet, fleet_of, meet_the_coordinator, why_no_java
from .stories import Stories, play
from .tries import own_name

HERE = Path(__file__).parent


@cache
def java_is_missing() -> str | None:
    return why_no_java()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `java` where Java's client cannot be built; the reason is shown in the summary."""
    if HERE in item.path.parents and item.get_closest_marker("java"):
        missing = java_is_missing()
        if missing:
            pytest.skip(f"Java's client is missing: {missing}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show skipped clients prominently, so that an untested client does not look like a passing one, and the
    properties that tests have recorded."""
    for report in terminalreporter.stats.get("passed", ()):
        if "against/" in report.nodeid and report.user_properties:
            properties = ", ".join(f"{name}: {value}" for name, value in report.user_properties)
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {properties}")
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "against/" in report.nodeid]
    reasons: dict[str, int] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        terminalreporter.section(f"real clients: {len(skipped)} tests were NOT run", yellow=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.write_line(f"{count:3d} x {reason}")


def a_broker(directory: Path, settings: dict[str, str] | None = None) -> Broker:
    try:
        broker = chosen()(directory, settings)
    except Unavailable as missing:
        pytest.skip(f"the broker to test against is missing: {missing}")
    return broker


@contextmanager
def a_running_broker(
    directory: Path, settings: dict[str, str] | None = None, *, kill: bool = False
) -> Iterator[Broker]:
    """One that is stopped at the end, or killed where a test may have done so already."""
    broker = a_broker(directory, settings)
    broker.start()
    try:
        yield broker
    finally:
        if kill:
            broker.kill9()
        else:
            broker.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that leave it standing; each uses topics and groups of its own."""
    with a_running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker for one test, which may kill it."""
    with a_running_broker(tmp_path / "broker", kill=True) as broker:
        yield broker


@pytest.fixture
def own_fleet(own_broker: Broker, tmp_path: Path) -> Iterator[Fleet]:
    """Clients of the test's own broker."""
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        yield fleet


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(broker.bootstrap, tmp_path / "clients") as fleet:
        yield fleet


@pytest.fixture(scope="session")
def shared_fleet(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Clients that many tests may share: admin clients, producers."""
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("clients")) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def admins(shared_fleet: Fleet) -> "Admins":
    return Admins(shared_fleet)


class Admins:
    """One admin client of each library, started on first use."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._clients: dict[str, Client] = {}

    def __getitem__(self, library: str) -> Client:
        if library not in self._clients:
            # confluent-kafka's admin may crash of the answer that there is no coordinator yet.
            patient = self["kafka-python"] if library == "confluent-kafka" else None
            self._clients[library] = self._fleet.admin(library, f"admin-{library}")
            meet_the_coordinator(patient or self._clients[library])
        return self._clients[library]


@pytest.fixture(scope="module")
def stories(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """Each group story is played once, however many tests ask about it; clients end with the module."""
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("stories")) as fleet:
        admin, lock = fleet.admin("kafka-python", "storyteller"), threading.Lock()
        stories = Stories(lambda cast, again: play(cast, again, fleet, admin, lock), at_once=3)
        try:
            yield stories
        finally:
            stories.end()


@pytest.fixture
def topic(admins: Admins, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions, of this test's own."""
    name = f"t-{own_name(request)}"
    admins["confluent-kafka"].call("create_topics", topics=[{"name": name, "partitions": 4}])
    return name
