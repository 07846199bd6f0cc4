"""A coordinator's journal: records appended since the last sync are buffered and written as one batch."""

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
async def open_journal(path: Path, *, durable: bool = True) -> AsyncIterator[tuple[Journal, Partition]]:
    """Yield a journal on an empty partition of a running broker, and the partition."""
    async with running(path) as broker:
        await broker.topic_creator.create_internal(OFFSETS_TOPIC)
        partition = broker.partitions.get(OFFSETS_TOPIC, 0)
        assert partition is not None
        yield Journal(partition, durable=durable), partition


def batches(partition: Partition) -> list[tuple[int, int]]:
    """Return the base offset and record count of each batch in the log."""
    return [(header.base_offset, header.record_count) for header, _ in partition.batches()]


def test_records_since_the_last_sync_are_one_batch(tmp_path: Path) -> None:
    """Offsets are assigned at once; the log receives the records with the sync."""

    async def scenario() -> None:
        async with open_journal(tmp_path) as (journal, partition):
            assert [journal.append_pairs([PAIR] * count, 7) for count in (1, 2, 1)] == [1, 3, 4]
            assert (journal.end_offset, journal.synced_offset, batches(partition)) == (4, 0, [])
            await journal.sync()
            assert (journal.end_offset, journal.synced_offset, batches(partition)) == (4, 4, [(0, 4)])
            journal.append_pairs([PAIR], 8)
            await journal.sync()
            assert batches(partition) == [(0, 4), (4, 1)]

    asyncio.run(scenario())


def test_a_large_outcome_is_written_at_once_after_the_buffered_records(tmp_path: Path) -> None:
    """The caller must learn at once whether the outcome fits into a batch."""

    async def scenario() -> None:
        async with open_journal(tmp_path) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            assert journal.append_pairs([(b"key", bytes(MAX_BUFFERED_OUTCOME_BYTES))], 7) == 2
            assert batches(partition) == [(0, 1), (1, 1)]
            with pytest.raises(RecordTooLarge):
                journal.append_pairs([(b"key", bytes(partition.max_message_bytes))], 7)
            assert (journal.end_offset, batches(partition)) == (2, [(0, 1), (1, 1)])

    asyncio.run(scenario())


def test_the_buffer_is_limited_to_the_size_of_a_batch(tmp_path: Path) -> None:
    """An outcome is never split over two batches."""

    async def scenario() -> None:
        async with open_journal(tmp_path) as (journal, partition):
            count = 2 * MAX_BUFFER_BYTES // 1000
            for _ in range(count):
                journal.append_pairs([(b"key", bytes(900)), PAIR], 7)
            await journal.sync()
            found = batches(partition)
            assert sum(records for _, records in found) == 2 * count
            assert len(found) > 1
            assert all(records % 2 == 0 for _, records in found)

    asyncio.run(scenario())


def test_a_journal_that_is_not_durable_writes_at_once(tmp_path: Path) -> None:
    """Records in the page cache count as synced."""

    async def scenario() -> None:
        async with open_journal(tmp_path, durable=False) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            assert (journal.synced_offset, batches(partition)) == (1, [(0, 1)])

    asyncio.run(scenario())


def test_reading_back_discards_the_buffer(tmp_path: Path) -> None:
    """A reloaded shard holds the records of the log, and the next offset follows the last one written."""

    async def scenario() -> None:
        async with open_journal(tmp_path) as (journal, _):
            journal.append_pairs([PAIR], 7)
            await journal.sync()
            journal.append_pairs([PAIR], 7)
            assert [header.record_count for header, _ in journal.read_back()] == [1]
            assert journal.end_offset == 1

    asyncio.run(scenario())


def test_a_sync_raises_if_the_log_is_offline(tmp_path: Path) -> None:
    """The coordinator then reloads from the log."""

    async def scenario() -> None:
        async with open_journal(tmp_path) as (journal, partition):
            journal.append_pairs([PAIR], 7)
            with pytest.raises(LogOffline):
                partition.log.health.fail("the disk is gone", OSError("gone"))
            with pytest.raises(LogOffline):
                await journal.sync()
            assert not journal.online
            with pytest.raises(LogOffline):
                journal.append_pairs([PAIR], 7)

    asyncio.run(scenario())
