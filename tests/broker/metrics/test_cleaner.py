"""Metrics of the log cleaner."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.metrics.scraping import Samples, measured, scrape, value
from tests.broker.storage.compacted import (
    SETTINGS,
    T,
    cleaned,
    create,
    damage,
    fill,
    found,
    the_partition,
    until,
)

from konvene.broker.broker import Broker
from konvene.log.cleaner.contract import CleanerStats

CLEANER, MANAGER = "kafka_log_LogCleaner_Value", "kafka_log_LogCleanerManager_Value"


def attribute(page: Samples, mbean: str, name: str, where: str | None = None) -> float:
    """The value of one of the gauges that share an MBean."""
    labels = (("name", name),) if where is None else (("logDirectory", where), ("name", name))
    return page[mbean, labels]


def test_cleanings_are_counted_by_topic_and_as_kafka_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with measured(tmp_path, SETTINGS) as (broker, port):
            page = await scrape(port)
            assert attribute(page, MANAGER, "max-dirty-percent", "") == 0
            await create(broker)
            partition = the_partition(broker)
            await fill(broker, partition)
            before = partition.log.size
            await cleaned(broker, partition)
            page = await scrape(port)
            assert value(page, "konvene_cleanings_total", topic="t") >= 1
            assert value(page, "konvene_cleaned_bytes_total", topic="t") == before - partition.log.size
            assert value(page, "konvene_cleaned_records_total", topic="t") == 1000 - len(found(partition.log))
            (cleaner,) = broker.cleaner.cleaners
            cleaner.stats = CleanerStats(
                bytes_read=1000, bytes_written=129, buffer_utilization=0.256, elapsed_s=3.9
            )
            cleaner.delay_ms = 2999
            page = await scrape(port)
            expected = {
                "max-buffer-utilization-percent": 25,
                "cleaner-recopy-percent": 12,
                "max-clean-time-secs": 3,
                "max-compaction-delay-secs": 2,
                "DeadThreadCount": 0,
            }
            assert {name: attribute(page, CLEANER, name) for name in expected} == expected
            assert 0 <= attribute(page, MANAGER, "time-since-last-run-ms", "") < 60_000

    asyncio.run(main())


def test_uncleanable_partitions_are_reported(tmp_path: Path) -> None:
    """Also if the cleaner stopped after an error; altered configs start a new one."""

    async def main() -> None:
        async with measured(tmp_path, SETTINGS) as (broker, port):
            await create(broker)
            partition = the_partition(broker)
            for number in range(20):
                partition.append([(b"k", bytes(100))], 1_000 + 10 * number)
            damage(Path(partition.log.segments[1].path))
            await partition.sync()
            await until(lambda: T in broker.cleaner.uncleanable)
            dirty = sum(segment.size for segment in partition.log.segments[:-1])
            page = await scrape(port)
            where = broker.directory.path
            assert attribute(page, MANAGER, "uncleanable-partitions-count", where) == 1
            assert attribute(page, MANAGER, "uncleanable-bytes", where) == dirty
            await fail_cleaner(broker)
            assert attribute(await scrape(port), CLEANER, "DeadThreadCount") == 1
            broker.cleaner.reconfigured()
            assert attribute(await scrape(port), CLEANER, "DeadThreadCount") == 0
            assert len(broker.cleaner.cleaners) == 1

    asyncio.run(main())


async def fail_cleaner(broker: Broker) -> None:
    """Let a cleaning fail with an unexpected error, which stops the cleaner."""
    kept = broker.cleaner.__class__._retain

    async def fails(_: object) -> None:
        raise ZeroDivisionError("injected")

    broker.cleaner.__class__._retain = fails  # type: ignore[method-assign,assignment]
    try:
        await until(lambda: broker.cleaner.cleaners[0].dead)
    finally:
        broker.cleaner.__class__._retain = kept  # type: ignore[method-assign]
