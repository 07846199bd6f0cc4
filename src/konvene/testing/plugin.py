"""Pytest plugin: broker fixtures, a marker for their settings, and a section in the reports of failed tests.

    konvene           a broker for this test alone
    konvene_module    a broker for the tests of a module, with the settings of the module's marker
    konvene_shared    the broker of the session; what a test creates is removed after it
    konvene_session   the broker of the session, never cleaned, for fixtures of a wider scope
    konvene_factory   a function that starts more brokers, for tests and for fixtures of any scope
    virtual_konvene   a broker in virtual time, for code that uses `konvene.client`

The marker `konvene` takes `settings` (Kafka's names), `topics` (partition counts by name) and `folder` (True
keeps the data in a temporary directory of pytest instead of memory), and `security`, `users`, `acls`,
`certificate` and `mechanism` as `konvene.testing.Konvene`. The markers of module, class and test are merged.
konvene is not imported before the first test that uses a broker.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from konvene.testing.konvene import Konvene
    from konvene.testing.virtual_konvene import VirtualKonvene

BROKER: pytest.StashKey[Konvene | VirtualKonvene] = pytest.StashKey()
"""Stash key of a test's broker, for its report."""

REMAINS: pytest.StashKey[set[str]] = pytest.StashKey()
"""Stash key of the groups that could not be removed after their test, since a client still ran."""

MARKER = (
    "konvene(settings={}, topics={}, folder=False, security='PLAINTEXT', users={}, acls=[],"
    " certificate='valid', mechanism='PLAIN'): settings, topics, storage and security of the test's broker"
)
SECURITY = ("security", "users", "acls", "certificate", "mechanism")
MAX_REPORT_LINES = 40


class _PlainImport:
    """An import hook that keeps pytest from rewriting the assertions of konvene's modules.

    Rewriting is of use for test modules only, and adds most of a second to the start of the first broker."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("konvene.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    if _PlainImport not in sys.meta_path:
        sys.meta_path.insert(0, _PlainImport)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def _reject(request: pytest.FixtureRequest, why: str) -> NoReturn:
    """Fail the test at setup, with one line and no traceback."""
    pytest.fail(f"{request.node.nodeid}: {why}", pytrace=False)


class MarkerSettings:
    """The settings, topics and storage in the `konvene` markers of a test, its class and its module, merged.

    If two markers have the same setting or topic, the one closest to the test applies."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.settings: dict[str, object] = {}
        self.topics: dict[str, int] = {}
        self.folder = False
        self.security: dict[str, Any] = {}
        for mark in reversed(list(request.node.iter_markers("konvene"))):
            unknown = set(mark.kwargs) - {"settings", "topics", "folder", *SECURITY}
            if mark.args or unknown:
                unexpected = ", ".join(map(repr, [*mark.args, *sorted(unknown)]))
                _reject(request, f"unexpected {unexpected}; the marker is {MARKER}")
            self.settings |= mark.kwargs.get("settings", {})
            self.topics |= mark.kwargs.get("topics", {})
            self.folder = mark.kwargs.get("folder", self.folder)
            self.security |= {name: mark.kwargs[name] for name in SECURITY if name in mark.kwargs}
        if self.settings:
            self._check_settings(request)

    def _check_settings(self, request: pytest.FixtureRequest) -> None:
        from konvene.configs.errors import ConfigError
        from konvene.testing.node import broker_config, settings_text

        errors: list[str] = []
        try:
            broker_config(settings_text(self.settings))
        except ConfigError as error:
            errors = [line.removeprefix("--set: ") for line in str(error).splitlines()]
        if errors:
            _reject(request, f"marker konvene(settings=...): {'; '.join(errors)}")

    def __repr__(self) -> str:
        return f"MarkerSettings({self.settings}, {self.topics}, folder={self.folder})"


@pytest.fixture
def konvene(request: pytest.FixtureRequest) -> Iterator[Konvene]:
    """Yield a Kafka broker for this test; clients connect to `konvene.bootstrap`."""
    from konvene.testing.konvene import broker

    options = MarkerSettings(request)
    folder = request.getfixturevalue("tmp_path") / "konvene" if options.folder else None
    with broker(options.settings, options.topics, folder, **options.security) as started:
        request.node.stash[BROKER] = started
        yield started


@pytest.fixture(scope="module")
def konvene_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Konvene]:
    """Yield a Kafka broker for all tests of this module; it is not cleaned between tests.

    It has the settings and topics of the module's marker (`pytestmark`)."""
    from konvene.testing.konvene import broker

    options = MarkerSettings(request)
    folder = tmp_path_factory.mktemp("konvene") if options.folder else None
    with broker(options.settings, options.topics, folder, **options.security) as started:
        yield started


class KonveneFactory:
    """Starts brokers for tests and fixtures. Those that are still open are stopped at the end of the
    session."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory, stack: ExitStack) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._stack = stack

    def __repr__(self) -> str:
        return "<konvene factory>"

    def __call__(
        self,
        settings: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | None = None,
        folder: Path | str | bool = False,
        **security: Any,
    ) -> Konvene:
        """Start a broker and return it. Use it as a context manager, or call `close`, to stop it earlier.

        `settings` has Kafka's broker configs, `topics` the partition counts of topics to create by name.
        `folder` is the directory of its data, or True for a temporary one; by default it is in memory.
        `security`: as for `konvene.testing.Konvene`."""
        from konvene.testing.konvene import broker

        path = self._tmp_path_factory.mktemp("konvene") if folder is True else folder or None
        return self._stack.enter_context(broker(settings, topics, path, **security))


@pytest.fixture(scope="session")
def konvene_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KonveneFactory]:
    """Yield a function that starts a Kafka broker: `konvene_factory(settings, topics, folder)`."""
    with ExitStack() as stack:
        yield KonveneFactory(tmp_path_factory, stack)


@pytest.fixture(scope="session")
def konvene_session() -> Iterator[Konvene]:
    """Yield one broker for the whole session; it is not cleaned between tests."""
    from konvene.testing.konvene import broker

    with broker() as started:
        yield started


@pytest.fixture
def konvene_shared(request: pytest.FixtureRequest, konvene_session: Konvene) -> Iterator[Konvene]:
    """Yield the session's broker; afterwards the topics and groups that the test added, and all faults, are
    removed."""
    options = MarkerSettings(request)
    if options.settings or options.folder or options.security:
        _reject(request, "konvene_shared takes no settings, folder and security; use the fixture konvene")
    konvene_session.start()
    remains = request.config.stash.setdefault(REMAINS, set())
    topics, groups = konvene_session.topics(), set(konvene_session.groups()) - remains
    for name, partitions in options.topics.items():
        konvene_session.create_topic(name, partitions=partitions)
    request.node.stash[BROKER] = konvene_session
    yield konvene_session
    konvene_session.start()
    konvene_session.clean(keep_topics=topics, keep_groups=groups)
    remains.update(set(konvene_session.groups()) - groups)


@pytest.fixture
def virtual_konvene(request: pytest.FixtureRequest) -> Iterator[VirtualKonvene]:
    """Yield a broker in virtual time; `virtual_konvene.run(main)` runs a coroutine function beside it."""
    from konvene.testing.virtual_konvene import virtual

    options = MarkerSettings(request)
    if options.folder or options.security:
        _reject(request, "virtual_konvene keeps its data in memory, and takes no folder and no security")
    with virtual(options.settings, options.topics) as made:
        request.node.stash[BROKER] = made
        yield made


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reject a marker on a test or class if the test only has the broker of its module."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if "konvene_module" not in fixtures or fixtures & {"konvene", "konvene_shared", "virtual_konvene"}:
        return
    for node, _ in item.iter_markers_with_node("konvene"):
        if isinstance(node, pytest.Class | pytest.Function):
            pytest.fail(
                f"{item.nodeid}: konvene_module takes the marker of the module (pytestmark), not of a test;"
                " use the fixture konvene for other settings",
                pytrace=False,
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's rebalances, faults and last log lines to the report of a failed test."""
    report = yield
    started = item.stash.get(BROKER, None) or getattr(item, "funcargs", {}).get("konvene_module")
    if report.failed and started is not None and call.when == "call":
        report.sections += _sections(started)
    return report


def _sections(started: Konvene | VirtualKonvene) -> list[tuple[str, str]]:
    try:
        rebalances = [str(each) for each in started.rebalances()]
    except Exception as error:
        rebalances = [f"not available: {error!r}"]
    parts = [
        ("konvene rebalances", rebalances),
        ("konvene faults", [str(each) for each in started.faults.log]),
        ("konvene log", [line for line in started.log if " konvene.rebalance:" not in line]),
    ]
    return [(name, "\n".join(lines[-MAX_REPORT_LINES:])) for name, lines in parts if lines]
