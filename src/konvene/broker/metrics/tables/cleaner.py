"""Metrics of the log cleaner: Kafka's, and the amounts removed from each topic.

Kafka's MBeans have their name as a property, so the JMX exporter makes it a label. Percentages are
truncated to integers, as in Kafka. Kafka's cleaner threads are tasks of the event loop here (`Cleaner`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, Lines, Metric, Snapshot
from konvene.broker.storage.cleaner_statistics import RemovalTotals

CLEANER_MBEAN: Final = "kafka.log:type=LogCleaner"
MANAGER_MBEAN: Final = "kafka.log:type=LogCleanerManager"


def _cleaner(snapshot: Snapshot) -> Lines:
    cleaners = snapshot.broker.cleaner.cleaners
    done = [cleaner.stats for cleaner in cleaners]
    read = sum(stats.bytes_read for stats in done)
    written = sum(stats.bytes_written for stats in done)
    fullest = max((stats.buffer_utilization for stats in done), default=0.0)
    yield ("max-buffer-utilization-percent",), int(100 * fullest)
    yield ("cleaner-recopy-percent",), int(100 * written / max(read, 1))
    yield ("max-clean-time-secs",), int(max((stats.elapsed_s for stats in done), default=0.0))
    yield ("max-compaction-delay-secs",), max((cleaner.delay_ms for cleaner in cleaners), default=0) // 1000
    yield ("DeadThreadCount",), sum(cleaner.dead for cleaner in cleaners)


def _manager(snapshot: Snapshot) -> Lines:
    cleaning, where = snapshot.broker.cleaner, snapshot.broker.directory.path
    yield ("uncleanable-partitions-count", where), len(cleaning.uncleanable)
    yield ("uncleanable-bytes", where), cleaning.uncleanable_bytes()
    yield ("max-dirty-percent", ""), int(100 * cleaning.dirtiest_ratio)
    yield (
        ("time-since-last-run-ms", ""),
        max(0, snapshot.broker.environment.wall_clock_ms() - cleaning.last_run_ms),
    )


def _removed(count: Callable[[RemovalTotals], int]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: [
        ((topic,), count(removed)) for topic, removed in sorted(snapshot.broker.cleaner.removed.items())
    ]


KAFKAS_OF_CLEANER: Final[tuple[Metric, ...]] = (
    Metric("kafka_log_LogCleaner_Value", GAUGE,
           "Maxima over each cleaner's last cleaning: use of the offset map in percent, duration in seconds, "
           "and compaction delay in seconds; bytes written as a percentage of the bytes read; cleaners that "
           "stopped with an error.",
           _cleaner, ("name",), "Value"),
    Metric("kafka_log_LogCleanerManager_Value", GAUGE,
           "Uncleanable partitions and their dirty bytes, dirty ratio of the dirtiest log in percent, and "
           "milliseconds since the last run.",
           _manager, ("name", "logDirectory"), "Value"),
)  # fmt: skip

OURS_OF_CLEANER: Final[tuple[Metric, ...]] = (
    Metric("konvene_cleanings_total", COUNTER, "Cleanings of the logs of a compacted topic.",
           _removed(lambda removed: removed.cleanings), ("topic",)),
    Metric("konvene_cleaned_bytes_total", COUNTER, "Bytes that cleanings removed from a topic's logs.",
           _removed(lambda removed: removed.bytes), ("topic",)),
    Metric("konvene_cleaned_records_total", COUNTER, "Records that cleanings removed from a topic's logs.",
           _removed(lambda removed: removed.records), ("topic",)),
)  # fmt: skip
