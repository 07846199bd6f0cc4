"""Pytest plugin: broker fixtures, a marker for their settings, and a section in the reports of failed tests.

    konvene           a broker for this test alone
    konvene_shared    the broker of the session; what a test creates is removed after it
    konvene_session   the broker of the session, never cleaned, for fixtures of a wider scope
    virtual_konvene   a broker in virtual time, for code that uses `konvene.client`

The marker `konvene` takes `settings` (Kafka's names), `topics` (partition counts by name) and `folder` (True
keeps the data in the test's `tmp_path` instead of memory). The markers of module, class and test are merged.
konvene is not imported before the first test that uses a broker.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from konvene.testing.konvene import Konvene
    from konvene.testing.virtual_konvene import VirtualKonvene

BROKER: pytest.StashKey[Konvene | VirtualKonvene] = pytest.StashKey()
"""Stash key of a test's broker, for its report."""

REMAINS: pytest.StashKey[set[str]] = pytest.StashKey()
"""Stash key of the groups that could not be removed after their test, since a client still ran."""

MARKER = "konvene(settings={}, topics={}, folder=False): settings, topics and storage of the test's broker"
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
        for mark in reversed(list(request.node.iter_markers("konvene"))):
            unknown = set(mark.kwargs) - {"settings", "topics", "folder"}
            if mark.args or unknown:
                unexpected = ", ".join(map(repr, [*mark.args, *sorted(unknown)]))
                _reject(request, f"unexpected {unexpected}; the marker is {MARKER}")
            self.settings |= mark.kwargs.get("settings", {})
            self.topics |= mark.kwargs.get("topics", {})
            self.folder = mark.kwargs.get("folder", self.folder)
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
    with broker(options.settings, options.topics, folder) as started:
        request.node.stash[BROKER] = started
        yield started


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
    if options.settings or options.folder:
        _reject(request, "konvene_shared takes no settings and no folder; use the fixture konvene")
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
    if options.folder:
        _reject(request, "virtual_konvene keeps its data in memory and takes no folder")
    with virtual(options.settings, options.topics) as made:
        request.node.stash[BROKER] = made
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's rebalances, faults and last log lines to the report of a failed test."""
    report = yield
    started = item.stash.get(BROKER, None)
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
