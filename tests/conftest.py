"""What holds for all tests: none fails for the time that it takes, on a machine with other things to do.

With several workers (pytest-xdist, `--dist loadfile`) a file's tests are one worker's, since they share a
broker or a JVM, and all who need Spark are one worker's. The longest files begin first, so that in the end
nobody waits for one of them, and what waits takes turns with what computes: two workers more than there are
processors then keep a machine of two busy, and leave those who measure time in peace.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HERE = Path(__file__).parent

ONE_WORKERS = ("pipeline/spark/",)
"""Folders that are one worker's as a whole."""

WAIT = (
    "against/test_held_heartbeats.py",
    "against/streams_groups/test_rolling_migration.py",
    "against/streams_groups/test_held_heartbeats.py",
    "against/consumer_groups/test_members.py",
    "against/transactions/test_copies.py",
    "against/test_assignors.py",
    "against/consumer_groups/test_migration.py",
    "against/test_data.py",
    "against/streams_groups/test_instances.py",
    "against/test_stories.py",
    "against/test_kills.py",
    "against/test_offsets.py",
    "test_bench.py",
    "against/share/test_kills.py",
    "differential/test_differential.py",
    "against/consumer_groups/test_topics.py",
    "against/test_static.py",
    "against/transactions/test_producers.py",
    "testing/test_real_clients.py",
    "against/test_kafka_loads_streams.py",
    "against/transactions/test_streams.py",
    "broker/shares/test_fetch.py",
    "against/share/test_acknowledging.py",
    "pipeline/gold/test_crash.py",
    "against/transactions/test_zombies.py",
    "browser/test_report.py",
    "against/test_groups.py",
    "against/test_history.py",
    "against/test_streams.py",
    "against/test_restart.py",
    "against/consumer_groups/test_static_members.py",
    "against/test_kafka_loads_consumers.py",
    "against/test_kafka_loads_transactions.py",
    "against/test_kafka_loads_shares.py",
    "against/test_kafka_cleaned.py",
    "broker/shares/test_writes.py",
    "against/share/test_deliveries.py",
    "against/test_trouble.py",
    "against/test_admin.py",
    "docs/test_examples.py",
    "testing/test_page.py",
    "testing/test_plugin.py",
    "against/consumer_groups/test_restart.py",
    "against/test_tools.py",
    "against/test_group_tools.py",
    "against/streams_groups/test_operators.py",
    "against/streams_groups/test_topics.py",
    "against/streams_groups/test_queries.py",
    "against/share/test_offsets.py",
    "against/streams_groups/test_migration.py",
    "broker/hostile/test_groups.py",
)
COMPUTE = (
    "sim/seeds/test_streams.py",
    "sim/seeds/test_migration.py",
    "pipeline/spark/",
    "sim/seeds/test_consumer.py",
    "sim/seeds/test_consumer_static.py",
    "sim/seeds/test_streams_migration.py",
    "groups/test_invariants_machine.py",
    "pipeline/ingest/test_archive.py",
    "broker/storage/test_disk_faults.py",
    "sim/seeds/test_static.py",
    "sim/seeds/test_mixed.py",
    "sim/model_check/test_consumer.py",
    "sim/seeds/test_classic.py",
    "delivery/test_small_world.py",
    "sim/seeds/test_transactional.py",
    "sim/model_check/test_classic.py",
    "sim/model_check/test_share.py",
    "log/cleaner/test_crash.py",
    "groups/assignors/highly_available/test_invariants.py",
    "groups/history/test_rolling.py",
    "codec/test_hostile.py",
    "pipeline/reduce/test_compaction.py",
    "sim/runs/test_run.py",
    "sim/seeds/test_share.py",
    "sim/end_to_end/test_run.py",
    "pipeline/gold/test_resume.py",
    "sim/end_to_end/test_transactions.py",
    "groups/assignors/tasks/test_contract.py",
    "groups/assignors/test_contract.py",
    "pipeline/ingest/test_ingest_large.py",
    "groups/history/test_streams.py",
    "broker/shares/test_state_coordinators_disk.py",
    "sim/end_to_end/test_disk.py",
    "codec/test_properties.py",
    "transactions/test_walks.py",
    "log/test_recovery.py",
    "groups/test_transcripts.py",
    "groups/streams/test_invariants.py",
    "sim/transcript/test_streams_recorder.py",
)
"""What takes a worker more than some seconds, the longest first, but Spark, whose threads are many, when the
shorter of those that measure time is over.

A file that is missing here costs a little time and nothing else; `--durations` tells."""

OF_OTHERS = ("against/", "browser/", "docs/", "pipeline/spark/", "test_bench.py", "testing/")
"""Where tests watch programs that are not ours at work, and their time-outs, or what took how long."""

EXTERNAL = ("against/", "browser/", "delivery/beside/", "log/cleaner/beside/", "pipeline/spark/")
"""Folders whose tests need Java, a browser or Spark; `make test` leaves them to `make test-all`."""

PLACES = {name: n for n, name in enumerate(WAIT)} | {name: 2 * n + 1.5 for n, name in enumerate(COMPUTE)}
"""Two that wait, then one that computes."""


def unit(file: str) -> str:
    """What a worker takes as a whole: a file, or the folder that it is in."""
    return next((folder for folder in ONE_WORKERS if file.startswith(folder)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which workers take files; within a file nothing changes.

    What fails among the programs of others is tried once more: their time-outs are theirs, and a machine that
    stood still for seconds is no fault of the broker's. Both tries are told; who looks for what fails one
    time in fifty says `-p no:rerunfailures`."""
    last = 2 * len(PLACES)
    items.sort(key=lambda item: PLACES.get(unit(item.path.relative_to(HERE).as_posix()), last))
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if file.startswith(OF_OTHERS):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if file.startswith(EXTERNAL) or item.get_closest_marker("java"):
            item.add_marker(pytest.mark.external)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed and was tried again: {report.nodeid}", yellow=True)
        terminalreporter.write_line(str(report.longrepr))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look through it again and again,
    nor come as often as in a small program."""
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
            return unit(super()._split_scope(nodeid).removeprefix("tests/"))

    config.option.loadscopereorder = False  # Which would be by the number of tests.
    return ByUnit(config, log)
