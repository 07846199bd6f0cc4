"""A coordinator's journal: what waits for the disk is written when the disk is asked, as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.running import running

from konvene.broker.storage.partitions import Partition
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.errors import LogOffline
from konvene.runtime.journal import MAX_BUFFER_BYTES, MAX_BUFFERED_OUTCOME_BYTES, Journal
from konvene.runtime.ports import RecordTooLarge

PAIR = (b"key", b"value")


@asynccontextmanager
async def a_partition(path: Path, *, durable: bool = True) -> AsyncIterator[tuple[Journal, Partition]]:
    """An empty partition of a broker that runs, and a journal of it."""
    async with running(path) as broker:
        await broker.topic_creator.create_internal(OFFSETS_TOPIC)
        partition = broker.partitions.get(OFFSETS_TOPIC, 0)
        assert partition is not None
        yield Journal(partition, durable=durable), partition


def batches(partition: Partition) -> list[tuple[int, int]]:
    """Base offset and number of records of each batch in the log."""
    return [(header.base_offset, header.record_count) for header, _ in partition.batches()]


def test_what_came_since_the_last_sync_is_one_batch(tmp_path: Path) -> None:
    """Offsets are known at once; the log has them with the sync."""

    async def story() -> None:
        async with a_partition(tmp_path) as (journal, partition):
            assert [journal.append_pairs([PAIR] * count, 7) for count in (1, 2, 1)] == [1, 3, 4]
            assert (journal.end_offset, journal.synced_offset, batches(partition)) == (4, 0, [])
            await journal.sync()
            assert (journal.end_offset, journal.synced_offset, batches(partition)) == (4, 4, [(0, 4)])
            journal.append_pairs([PAIR], 8)
            await journal.sync()
            assert batches(partition) == [(0, 4), (4, 1)]

    asyncio.run(story())


def test_what_is_large_is_written_at_once_behind_what_was_kept(tmp_path: Path) -> None:
    """It must be known whether it fits."""

    async def story() -> None:
        async with a_partition(tmp_path) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            assert journal.append_pairs([(b"key", bytes(MAX_BUFFERED_OUTCOME_BYTES))], 7) == 2
            assert batches(partition) == [(0, 1), (1, 1)]
            with pytest.raises(RecordTooLarge):
                journal.append_pairs([(b"key", bytes(partition.max_message_bytes))], 7)
            assert (journal.end_offset, batches(partition)) == (2, [(0, 1), (1, 1)])

    asyncio.run(story())


def test_no_more_is_kept_than_a_batch_may_hold(tmp_path: Path) -> None:
    """Each outcome stays whole."""

    async def story() -> None:
        async with a_partition(tmp_path) as (journal, partition):
            count = 2 * MAX_BUFFER_BYTES // 1000
            for _ in range(count):
                journal.append_pairs([(b"key", bytes(900)), PAIR], 7)
            await journal.sync()
            found = batches(partition)
            assert sum(records for _, records in found) == 2 * count
            assert len(found) > 1
            assert all(records % 2 == 0 for _, records in found)

    asyncio.run(story())


def test_where_nobody_waits_for_the_disk_all_is_written_at_once(tmp_path: Path) -> None:
    """Its page cache counts as durable."""

    async def story() -> None:
        async with a_partition(tmp_path, durable=False) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            assert (journal.synced_offset, batches(partition)) == (1, [(0, 1)])

    asyncio.run(story())


def test_what_was_kept_is_forgotten_when_the_log_is_read_back(tmp_path: Path) -> None:
    """The shard is what the log says, and offsets begin where the log ends."""

    async def story() -> None:
        async with a_partition(tmp_path) as (journal, _):
            journal.append_pairs([PAIR], 7)
            await journal.sync()
            journal.append_pairs([PAIR], 7)
            assert [header.record_count for header, _ in journal.read_back()] == [1]
            assert journal.end_offset == 1

    asyncio.run(story())


def test_a_sync_that_cannot_write_says_so(tmp_path: Path) -> None:
    """Then the coordinator begins again from the log."""

    async def story() -> None:
        async with a_partition(tmp_path) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            with pytest.raises(LogOffline):
                partition.log.health.fail("the disk is gone", OSError("gone"))
            with pytest.raises(LogOffline):
                await journal.sync()
            assert not journal.online
            with pytest.raises(LogOffline):
                journal.append_pairs([PAIR], 7)

    asyncio.run(story())
