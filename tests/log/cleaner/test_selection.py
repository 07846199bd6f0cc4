"""What of a log may be cleaned, and which log is cleaned first, as Kafka decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.log.cleaner.logs import CONFIG, NOW, PLACE, bases, opened, put

from konvene.codec import batches as rb
from konvene.log.cleaner.contract import LastProducerRecord, SourceSegment
from konvene.log.cleaner.selection import LogToClean, cleaning_task, filthiest_log, is_cleanable, log_to_clean
from konvene.log.config import LONG_MAX
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import DamagedLog, LogOffline
from konvene.log.partition import PartitionLog

HOUR = 3600 * 1000


def filled(records: int = 30, config=CONFIG, now_ms: int = NOW) -> PartitionLog:
    disk = MemoryDisk()
    disk.now_ms = now_ms
    log = opened(disk, config)[1]
    for at in range(records):
        put(log, b"key %02d" % at, b"value", now_ms=now_ms)
    log.sync()
    return log


def seen(log: PartitionLog, cleaned_to: int | None = None, now_ms: int = NOW) -> LogToClean:
    return log_to_clean(log, cleaned_to, log.end_offset, now_ms)


def sizes(log: PartitionLog, first: int, stop: int) -> int:
    return sum(segment.size for segment in log.segments[first:stop])


def test_a_log_that_was_never_cleaned_is_dirty_up_to_its_active_segment():
    """From the log's start to the active segment, all of it."""
    log = filled()
    found = seen(log)
    assert found == LogToClean(0, log.active_segment.base_offset, 0, sizes(log, 0, -1), 1.0, 0, False)
    assert found.total_bytes == log.size - log.active_segment.size


def test_what_was_cleaned_counts_as_clean():
    """The ratio is that of the bytes behind the last cleaning to all that would be read."""
    log = filled()
    third = bases(log)[2]
    found = seen(log, third)
    assert found[:4] == (third, log.active_segment.base_offset, sizes(log, 0, 2), sizes(log, 2, -1))
    assert found.ratio == sizes(log, 2, -1) / sizes(log, 0, -1)


def test_a_segment_that_was_cleaned_in_part_counts_twice():
    """As in Kafka: what is before the offset is clean, and the segment is dirty."""
    log = filled()
    found = seen(log, bases(log)[1] + 1)
    assert (found.clean_bytes, found.cleanable_bytes) == (sizes(log, 0, 2), sizes(log, 1, -1))


def test_nothing_is_cleaned_behind_the_high_watermark():
    """The segment that holds the high watermark is the first that is not touched."""
    log = filled()
    fourth = bases(log)[3]
    assert log_to_clean(log, None, fourth + 1, NOW).first_uncleanable_offset == fourth
    assert log_to_clean(log, None, fourth, NOW).first_uncleanable_offset == fourth
    assert log_to_clean(log, None, fourth - 1, NOW).first_uncleanable_offset == bases(log)[2]


def test_nothing_is_cleaned_behind_an_open_transaction():
    """An undecided transaction holds it up, also when all is old enough; its end lets go of it."""
    log = filled(3)
    data = rb.build_simple(
        [(b"1", b"a")], NOW, producer_id=15, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(data, 0, NOW)
    log.roll(NOW)
    log.sync()
    assert seen(log).first_uncleanable_offset == 0
    log.append_marker(False, 0, NOW, producer_id=15, producer_epoch=0, coordinator_epoch=0)
    log.roll(NOW)
    log.sync()
    assert seen(log).first_uncleanable_offset == 5


def test_nothing_is_cleaned_that_is_too_young():
    """The first dirty segment with a record younger than `min.compaction.lag.ms` ends it."""
    config = replace(CONFIG, min_compaction_lag_ms=HOUR)
    log = filled(12, config)
    young = log.active_segment.base_offset
    for at in range(20):
        put(log, b"late %d" % at, b"value", now_ms=NOW + HOUR + 1)
    log.sync()
    assert seen(log, now_ms=NOW + HOUR).first_uncleanable_offset == young
    assert seen(log, now_ms=NOW + HOUR - 1).first_uncleanable_offset == 0
    assert seen(log, now_ms=NOW + 2 * HOUR + 1).first_uncleanable_offset == log.active_segment.base_offset


def test_a_lag_that_only_the_active_segment_is_in_changes_nothing():
    """All finished segments are old enough."""
    log = filled(config=replace(CONFIG, min_compaction_lag_ms=HOUR))
    assert seen(log, now_ms=NOW + HOUR + 1).first_uncleanable_offset == log.active_segment.base_offset


def test_nothing_is_cleaned_that_is_not_durable():
    """A finished segment whose indexes are not written is not yet one: the next sync makes it so."""
    log = filled(4)
    durable = log.active_segment.base_offset
    for at in range(20):
        put(log, b"more %d" % at, b"value")
    assert log.active_segment.base_offset > durable
    assert seen(log).first_uncleanable_offset == durable
    log.sync_finished()
    assert seen(log).first_uncleanable_offset == log.active_segment.base_offset


def test_a_checkpoint_outside_of_the_log_is_no_good():
    """Before the start or behind the end: all is dirty, and the checkpoint is to be written again."""
    log = filled()
    log.delete_records_before(10)
    assert (seen(log, 15).first_dirty_offset, seen(log, 15).must_reset_checkpoint) == (15, False)
    assert (seen(log, 9).first_dirty_offset, seen(log, 9).must_reset_checkpoint) == (10, True)
    assert (seen(log, 31).first_dirty_offset, seen(log, 31).must_reset_checkpoint) == (10, True)
    assert (seen(log).first_dirty_offset, seen(log).must_reset_checkpoint) == (10, False)


@pytest.mark.parametrize("cleaned_to", [None, 2, 3])
def test_a_log_of_one_segment_has_nothing_to_clean(cleaned_to):
    """Wherever in it the last cleaning ended, or its start is."""
    log = filled(3)
    assert len(log.segments) == 1
    assert seen(log, cleaned_to).cleanable_bytes == 0
    assert not is_cleanable(seen(log, cleaned_to), log.config)
    log.delete_records_before(2)
    assert seen(log, cleaned_to).cleanable_bytes == 0


def test_a_log_is_worth_cleaning_above_its_ratio():
    """More than `min.cleanable.dirty.ratio` must be dirty; exactly so much is not enough."""
    half = LogToClean(10, 20, 500, 500, 0.5, 0, False)
    assert not is_cleanable(half, replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    assert is_cleanable(half, replace(CONFIG, min_cleanable_dirty_ratio=0.49))
    assert not is_cleanable(
        LogToClean(10, 10, 500, 0, 0.0, 0, False), replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    )


def test_a_log_that_has_waited_too_long_is_cleaned_whatever_its_ratio():
    """`max.compaction.lag.ms` counts from the first batch of the oldest dirty segment that is finished."""
    log = filled(config=replace(CONFIG, max_compaction_lag_ms=HOUR, min_cleanable_dirty_ratio=1.0))
    assert seen(log, now_ms=NOW + HOUR).compaction_delay_ms == 0
    assert not is_cleanable(seen(log, now_ms=NOW + HOUR), log.config)
    late = seen(log, now_ms=NOW + HOUR + 7)
    assert late.compaction_delay_ms == 7
    assert is_cleanable(late, log.config)
    assert seen(log, log.active_segment.base_offset, NOW + 9 * HOUR).compaction_delay_ms == 0
    again = opened(log._disk.copy(), log.config)[1]  # It has to read the times.
    assert seen(again, now_ms=NOW + HOUR + 7).compaction_delay_ms == 7
    assert seen(filled(), now_ms=LONG_MAX // 2).compaction_delay_ms == 0


def test_records_do_not_wait_in_a_segment_that_grows():
    """The active segment is finished after `max.compaction.lag.ms`, if that is sooner and it compacts."""
    assert replace(CONFIG, max_compaction_lag_ms=5, segment_ms=9).max_segment_ms == 5
    assert replace(CONFIG, max_compaction_lag_ms=10, segment_ms=9).max_segment_ms == 9
    delete = frozenset({"delete"})
    assert replace(CONFIG, max_compaction_lag_ms=5, segment_ms=9, cleanup_policy=delete).max_segment_ms == 9
    log = filled(1, replace(CONFIG, max_compaction_lag_ms=1000))
    put(log, b"k", b"in time", now_ms=NOW + 1000)
    assert len(log.segments) == 1
    put(log, b"k", b"too late", now_ms=NOW + 1001)
    assert bases(log) == [0, 2]


def test_the_dirtiest_is_the_first():
    """By ratio; the first of equals; none of none."""
    looks = {ratio: LogToClean(0, 1, 1, 1, ratio, 0, False) for ratio in (0.2, 0.7, 0.5)}
    assert filthiest_log((str(ratio), each) for ratio, each in looks.items()) == "0.7"
    assert filthiest_log([("a", looks[0.5]), ("b", looks[0.5])]) == "a"
    assert filthiest_log([]) is None


def test_a_task_names_all_that_a_cleaning_asks_for():
    """Each segment with its files' sizes and time; producers, aborted transactions, settings."""
    config = replace(CONFIG, delete_retention_ms=77, segment_index_bytes=88, max_message_bytes=99)
    log = filled(11, config)
    data = rb.build_simple(
        [(b"1", b"a")], NOW, producer_id=15, producer_epoch=2, base_sequence=0, transactional=True
    )
    log.append_as_leader(data, 0, NOW)
    log.append_marker(False, 0, NOW, producer_id=15, producer_epoch=2, coordinator_epoch=0)
    log.append_marker(True, 0, NOW, producer_id=16, producer_epoch=1, coordinator_epoch=0)
    log.roll(NOW)
    log.sync()
    found = seen(log)
    task = cleaning_task(log, found, log.end_offset, NOW + 5, 4096)
    disk = log._disk
    assert task.sources == tuple(
        SourceSegment(
            base, following, f"{PLACE}/{base:020d}.log", disk.size(f"{PLACE}/{base:020d}.log"),
            disk.size(f"{PLACE}/{base:020d}.index"), disk.size(f"{PLACE}/{base:020d}.timeindex"), NOW,
        )
        for base, following in zip(bases(log), bases(log)[1:], strict=False)
    )  # fmt: skip
    assert len(task.sources) > 2
    assert (task.directory, task.first_dirty_offset, task.first_uncleanable_offset) == (PLACE, 0, 14)
    assert (task.high_watermark, task.now_ms, task.map_bytes) == (14, NOW + 5, 4096)
    assert [tuple(transaction)[:3] for transaction in task.aborted] == [(15, 11, 12)]
    assert task.last_records == {15: LastProducerRecord(11, 2), 16: LastProducerRecord(None, 1)}
    assert (task.segment_bytes, task.index_interval_bytes) == (CONFIG.segment_bytes, 1)
    assert (task.delete_retention_ms, task.segment_index_bytes, task.max_message_bytes) == (77, 88, 99)
    again = opened(disk.copy(), config)[1]  # Where no index has been read, or one is missing, it is the same.
    assert cleaning_task(again, found, 14, NOW + 5, 4096) == task
    without = disk.copy()
    without.remove(f"{PLACE}/{0:020d}.index")
    again = opened(without, config)[1]
    assert cleaning_task(again, found, 14, NOW + 5, 4096) == task


def test_a_log_that_cannot_be_read_is_reported():
    """An error of the disk takes it offline; bytes that are no batch are damage."""
    log = opened(filled(config=replace(CONFIG, max_compaction_lag_ms=HOUR))._disk.copy(),
                 replace(CONFIG, max_compaction_lag_ms=HOUR))[1]  # fmt: skip
    disk = log._disk
    log.segments[0].first_timestamp = -1
    disk.fail[disk.calls + 1] = 5
    with pytest.raises(LogOffline):
        seen(log)
    log = filled(config=replace(CONFIG, max_compaction_lag_ms=HOUR))
    first = log.segments[0]
    first.first_timestamp = -1
    first.file.truncate(0)
    first.file.append(bytes(first.size))
    with pytest.raises(DamagedLog):
        seen(log)
