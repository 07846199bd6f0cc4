"""The rows of the log's cleaner: Kafka's, and what was removed of each topic.

Kafka's MBeans have their name as a property, so the JMX exporter makes it a label. Percentages are cut to
whole numbers, as there. What Kafka keeps of each of its threads is here kept of each cleaner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, Lines, Metric, Seen
from konvene.broker.storage.cleaner_statistics import Removed

CLEANER_MBEAN: Final = "kafka.log:type=LogCleaner"
MANAGER_MBEAN: Final = "kafka.log:type=LogCleanerManager"


def _cleaner(seen: Seen) -> Lines:
    cleaners = seen.broker.cleaner.cleaners
    done = [cleaner.stats for cleaner in cleaners]
    read = sum(stats.bytes_read for stats in done)
    written = sum(stats.bytes_written for stats in done)
    fullest = max((stats.buffer_utilization for stats in done), default=0.0)
    yield ("max-buffer-utilization-percent",), int(100 * fullest)
    yield ("cleaner-recopy-percent",), int(100 * written / max(read, 1))
    yield ("max-clean-time-secs",), int(max((stats.elapsed_s for stats in done), default=0.0))
    yield ("max-compaction-delay-secs",), max((cleaner.delay_ms for cleaner in cleaners), default=0) // 1000
    yield ("DeadThreadCount",), sum(cleaner.dead for cleaner in cleaners)


def _manager(seen: Seen) -> Lines:
    cleaning, where = seen.broker.cleaner, seen.broker.directory.path
    yield ("uncleanable-partitions-count", where), len(cleaning.uncleanable)
    yield ("uncleanable-bytes", where), cleaning.uncleanable_bytes()
    yield ("max-dirty-percent", ""), int(100 * cleaning.dirtiest_ratio)
    yield (
        ("time-since-last-run-ms", ""),
        max(0, seen.broker.environment.wall_clock_ms() - cleaning.last_run_ms),
    )


def _removed(count: Callable[[Removed], int]) -> Callable[[Seen], Lines]:
    return lambda seen: [
        ((topic,), count(removed)) for topic, removed in sorted(seen.broker.cleaner.removed.items())
    ]


KAFKAS_OF_CLEANER: Final[tuple[Metric, ...]] = (
    Metric("kafka_log_LogCleaner_Value", GAUGE,
           "Of the last cleaning of each cleaner, the most: how full its memory for keys was, in percent; "
           "how many seconds it took; for how many something had waited too long. How much of what they read "
           "they wrote again, in percent. How many cleaners have stopped for an error.",
           _cleaner, ("name",), "Value"),
    Metric("kafka_log_LogCleanerManager_Value", GAUGE,
           "Logs that could not be cleaned and are left alone, and how many bytes of them are dirty; how "
           "dirty the dirtiest log is, in percent; milliseconds since it was looked for one.",
           _manager, ("name", "logDirectory"), "Value"),
)  # fmt: skip

OURS_OF_CLEANER: Final[tuple[Metric, ...]] = (
    Metric("konvene_cleanings_total", COUNTER, "Cleanings of logs of a compacted topic.",
           _removed(lambda removed: removed.cleanings), ("topic",)),
    Metric("konvene_cleaned_bytes_total", COUNTER, "Bytes that cleanings removed from its logs.",
           _removed(lambda removed: removed.bytes), ("topic",)),
    Metric("konvene_cleaned_records_total", COUNTER, "Records that cleanings removed from its logs.",
           _removed(lambda removed: removed.records), ("topic",)),
)  # fmt: skip
