"""Order, markers and depth of all tests.

With several workers (pytest-xdist, `--dist loadfile`) one worker runs all tests of a file, since they share
a broker or a JVM, and one runs all tests that need Spark. The longest files start first. Tests that wait
alternate with tests that compute, so that twice as many workers as processors keep all of them busy.

Properties (hypothesis) are tested with the same generated examples in every run.

`--quick` (`make test`, `make test-all`) runs fewer seeds and generated examples (`tests.depth`), and no test
marked `deep`. `--soak` runs more seeds, kills and generated examples.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import depth

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

settings.register_profile(
    "full", deadline=None, derandomize=True, max_examples=depth.EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("quick", settings.get_profile("full"), max_examples=depth.QUICK_EXAMPLES)
settings.register_profile("soak", settings.get_profile("full"), max_examples=depth.SOAK_EXAMPLES)
settings.load_profile("full")

HERE = Path(__file__).parent

ONE_WORKER = ("pipeline/spark/",)
"""Folders whose tests one worker runs."""

EACH_ALONE = ("sim/seeds/",)
"""Folders whose tests share nothing, so that each may run on any worker."""

WAIT = (
    "against/test_held_heartbeats.py",
    "test_bench.py",
    "against/consumer_groups/test_migration.py",
    "against/streams_groups/test_rolling_migration.py",
    "against/test_assignors.py",
    "against/transactions/test_copies.py",
    "docs/test_examples.py",
    "cli/groups/test_watch.py",
    "browser/console/test_all_pages.py",
    "console/test_server.py",
    "browser/console/test_hostile_names.py",
    "browser/console/test_live_members.py",
    "browser/test_console_page.py",
    "against/consumer_groups/test_members.py",
    "against/test_authorization.py",
    "against/test_static.py",
    "against/test_kills.py",
    "against/test_kafka_loads_streams.py",
    "against/test_offsets.py",
    "against/streams_groups/test_instances.py",
    "against/streams_groups/test_held_heartbeats.py",
    "against/test_stories.py",
    "against/test_data.py",
    "against/transactions/test_producers.py",
    "against/consumer_groups/test_topics.py",
    "differential/test_differential.py",
    "against/test_kafka_loads_shares.py",
    "against/test_restart.py",
    "against/test_kafka_cleaned.py",
    "against/test_streams.py",
    "against/transactions/test_zombies.py",
    "against/test_history.py",
    "broker/shares/test_fetch.py",
    "testing/test_real_clients.py",
    "against/transactions/test_streams.py",
    "against/consumer_groups/test_static_members.py",
    "against/test_groups.py",
    "against/test_kafka_loads_consumers.py",
    "pipeline/gold/test_crash.py",
    "log/cleaner/beside/test_beside_kafka.py",
    "against/share/test_kills.py",
    "browser/test_report.py",
    "against/test_tools.py",
    "against/test_trouble.py",
    "against/test_admin.py",
    "broker/shares/test_state_coordinators_disk.py",
    "docs/test_pages.py",
    "against/test_group_tools.py",
    "broker/shares/test_writes.py",
    "testing/test_plugin.py",
    "testing/test_page.py",
    "against/streams_groups/test_warmups.py",
    "docs/test_site.py",
    "against/share/test_acknowledging.py",
    "against/streams_groups/test_topics.py",
    "against/streams_groups/test_operators.py",
    "against/share/test_deliveries.py",
    "against/streams_groups/test_queries.py",
    "runtime/test_invariants.py",
    "against/test_kafka_loads_transactions.py",
    "test_house.py",
    "against/test_kafka_loads.py",
    "against/transactions/test_hanging.py",
    "broker/hostile/test_groups.py",
    "against/test_changes.py",
    "against/streams_groups/test_migration.py",
    "delivery/beside/test_beside_kafka.py",
)
COMPUTE = (
    "pipeline/spark/",
    "sim/seeds/test_streams.py",
    "sim/seeds/test_consumer.py",
    "sim/seeds/test_consumer_static.py",
    "sim/seeds/test_streams_migration.py",
    "sim/seeds/test_classic.py",
    "sim/seeds/test_static.py",
    "groups/assignors/tasks/test_contract.py",
    "sim/seeds/test_migration.py",
    "broker/storage/test_disk_faults.py",
    "sim/model_check/test_consumer.py",
    "sim/seeds/test_mixed.py",
    "groups/test_invariants_machine.py",
    "sim/end_to_end/test_transactions.py",
    "sim/seeds/test_transactional.py",
    "pipeline/gold/test_resume.py",
    "log/cleaner/test_crash.py",
    "codec/test_hostile.py",
    "sim/end_to_end/test_share.py",
    "pipeline/ingest/test_archive.py",
    "log/cleaner/test_offset_map.py",
    "sim/model_check/test_classic.py",
    "delivery/test_small_world.py",
    "sim/handovers/test_handovers.py",
    "groups/assignors/test_contract.py",
    "sim/runs/test_parallel.py",
    "sim/seeds/test_share.py",
    "sim/runs/test_run.py",
    "pipeline/gold/test_buckets.py",
    "groups/history/test_rolling.py",
    "sim/end_to_end/test_run.py",
    "pipeline/reduce/test_compaction.py",
    "groups/assignors/highly_available/test_invariants.py",
    "pipeline/ingest/test_ingest_large.py",
    "pipeline/ingest/test_ingest.py",
    "pipeline/reduce/test_observed.py",
    "codec/test_properties.py",
    "groups/history/test_streams.py",
    "pipeline/gold/test_build.py",
    "codec/test_fuzz.py",
    "log/test_recovery.py",
    "groups/streams/test_invariants.py",
    "pipeline/codec/test_records.py",
    "pipeline/codec/test_flat.py",
    "transactions/test_walks.py",
    "sim/members/test_streams_migration.py",
    "groups/streams/classic/test_migration_walks.py",
    "pipeline/gold/test_lag.py",
    "groups/streams/topology/test_updates.py",
    "pipeline/answers/test_report.py",
    "pipeline/codec/test_typed.py",
    "sim/transcript/test_share_recorder.py",
    "sim/transactions/test_transactions.py",
)
"""Files that take more than some seconds, the longest first: those that mostly wait, and those that compute.
A file that is missing here costs a little time; `--durations` lists the slowest tests."""

OTHER_PROGRAMS = ("against/", "browser/", "docs/", "pipeline/spark/", "test_bench.py", "testing/")
"""Folders whose tests run other programs with time-outs of their own, or measure time."""

EXTERNAL = ("against/", "browser/", "delivery/beside/", "log/cleaner/beside/", "pipeline/spark/")
"""Folders whose tests need Java, a browser or Spark; `make test` leaves them to `make test-all`."""

RANKS = {name: n for n, name in enumerate(WAIT)} | {name: 2 * n + 1.5 for n, name in enumerate(COMPUTE)}
"""Two files that wait, then one that computes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="fewer seeds and generated examples; no deep tests")
    parser.addoption("--soak", action="store_true", help="more seeds, kills, generated examples")


def pytest_configure(config: pytest.Config) -> None:
    depth.quick, depth.soak = config.getoption("quick"), config.getoption("soak")
    if depth.quick or depth.soak:
        settings.load_profile("quick" if depth.quick else "soak")


def unit(file: str) -> str:
    """Return what one worker runs as a whole: a file, or the folder that it is in."""
    return next((folder for folder in ONE_WORKER if file.startswith(folder)), file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark and order the tests; within a file the order stays.

    A failed test of another program runs once more, since a machine that stood still for seconds is no fault
    of the broker. The summary shows both runs. `-p no:rerunfailures` turns this off, to find flaky tests."""
    if depth.quick:
        _keep_first(config, items)
    last = 2 * len(RANKS)
    items.sort(key=lambda item: RANKS.get(unit(item.path.relative_to(HERE).as_posix()), last))
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if file.startswith(OTHER_PROGRAMS):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if file.startswith(EXTERNAL) or item.get_closest_marker("java"):
            item.add_marker(pytest.mark.external)


def _keep_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop deep tests, and all but the first seeds of each test that has a parameter `seed`."""
    seeds: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    dropped = {id(item) for item in items if item.get_closest_marker("deep")}
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "seed" in params:
            others = {name: value for name, value in params.items() if name != "seed"}
            seeds[item.nodeid.partition("[")[0], repr(others)].append(item)
    for tests in seeds.values():
        dropped.update(id(item) for item in tests[depth.seeds(len(tests)) :])
    config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed and ran again: {report.nodeid}", yellow=True)
        terminalreporter.write_line(str(report.longrepr))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, and collect garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByUnit(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.removeprefix("tests/")
            file = path.partition("::")[0]
            return path if file.startswith(EACH_ALONE) else unit(file)

    config.option.loadscopereorder = False  # It would order by the number of tests.
    return ByUnit(config, log)
