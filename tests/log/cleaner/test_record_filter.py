"""Records that the cleaner retains per batch: cases of Kafka's `LogCleanerTest`, as lines."""

from __future__ import annotations

import pytest
from tests.log.cleaner.written import DAY, NOW, Log

from konvene.codec import batches
from konvene.codec.batches import Record, TimestampType
from konvene.codec.compression import Compression
from konvene.log.cleaner.contract import LastProducerRecord


def test_the_last_record_of_each_key_stays() -> None:
    log = Log()
    log.put(("a", "1"), ("b", "1"), ("c", "1"))
    log.put(("a", "2"))
    log.roll()
    log.put(("b", "2"))
    log.roll()
    stats = log.clean()
    assert log.batch_lines() == ["0-2 2:c=1", "3-3 3:a=2", "4-4 4:b=2"]
    assert (stats.messages_read, stats.messages_written) == (5, 3)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_packed_batch_is_packed_again_in_the_same_way(compression: Compression) -> None:
    log = Log()
    log.put(("a", "1"), ("b", "1" * 300), compression=compression)
    log.put(("a", "2"), compression=compression)
    log.roll()
    log.clean()
    assert log.batch_lines() == ["0-1 1:b=" + "1" * 300, "2-2 2:a=2"]
    assert [header.compression for header, _ in log.batches()] == [compression] * 2


def test_a_record_without_a_key_goes_and_is_counted() -> None:
    log = Log()
    log.put(("a", "1"), (None, "lost"))
    log.put((None, "lost as well"))
    log.put(("b", "1"))
    log.roll()
    assert log.clean().invalid_messages_read == 2
    assert log.batch_lines() == ["0-1 0:a=1", "3-3 3:b=1"]


def test_a_tombstone_stays_until_its_horizon() -> None:
    log = Log()
    log.put(("a", "1"), ("b", "1"))
    log.put(("a", None), ("c", "1"))
    log.roll()
    log.clean()
    kept = ["0-1 1:b=1", f"2-3 until+{DAY} 2:a=x 3:c=1"]
    assert log.batch_lines() == kept
    log.clock += DAY - 1
    log.put(("d", "1"))
    log.roll()
    log.clean()
    assert log.batch_lines() == [*kept, "4-4 4:d=1"]
    log.clock += 1
    log.put(("d", "2"))
    log.roll()
    assert log.clean().tombstones_removed == 1
    assert log.batch_lines() == ["0-1 1:b=1", f"2-3 until+{DAY} 3:c=1", "5-5 5:d=2"]


def test_times_of_records_outlive_the_horizon() -> None:
    log = Log()
    records = [Record(0, NOW - 5, b"a", None), Record(1, NOW - 9, b"b", b"1"), Record(2, NOW, b"c", b"1")]
    log.put_records(records)
    log.put(("c", "2"))
    log.roll()
    log.clean()
    assert log.records()[:2] == records[:2]
    assert log.batches()[0][0].max_timestamp == NOW - 5


def test_a_delete_horizon_beyond_the_maximum_is_none() -> None:
    log = Log()
    log.put(("a", None))
    log.roll()
    log.clean(delete_retention_ms=2**63 - 1)
    assert log.batch_lines() == ["0-0 0:a=x"]


def test_the_brokers_time_stays_with_what_is_left() -> None:
    log = Log()
    log.add(
        batches.build(
            [Record(0, NOW - 5, b"a", b"1"), Record(1, NOW - 3, b"b", None)],
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            log_append_time_ms=NOW + 7,
        )
    )
    log.put(("a", "2"))
    log.roll()
    log.clean()
    header, _ = log.batches()[0]
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW + 7)
    assert [record.timestamp for record in log.records()] == [NOW + 7, NOW]


def test_the_last_batch_of_an_active_producer_stays_empty() -> None:
    log = Log()
    log.put(("a", "1"), producer=1)
    log.put(("a", "2"), producer=1)
    log.put(("a", "3"), producer=2)
    log.roll()
    log.put(("a", "4"))
    log.roll()
    log.clean()
    assert log.batch_lines() == ["1-1 P1", "2-2 P2", "3-3 3:a=4"]
    header, data = log.batches()[0]
    assert (len(data), header.base_sequence, header.last_sequence) == (61, 1, 1)
    log.put(("b", "1"), producer=1)
    del log.last[2]
    log.roll()
    log.clean()
    assert log.batch_lines() == ["3-3 3:a=4", "4-4 P1 4:b=1"]


def test_the_batch_in_front_of_the_high_watermark_stays_empty() -> None:
    log = Log()
    log.put(("a", "1"))
    log.put((None, "lost"))
    log.roll()
    log.high_watermark = 2
    log.clean()
    assert log.batch_lines() == ["0-0 0:a=1", "1-1"]
    log.high_watermark = None
    log.put(("b", "1"))
    log.roll()
    log.clean()
    assert log.batch_lines() == ["0-0 0:a=1", "2-2 2:b=1"]


def test_what_was_aborted_goes_at_once_and_its_marker_later() -> None:
    log = Log()
    log.put(("a", "1"))
    log.put(("a", "2"), producer=1, transactional=True)
    log.end(1, committed=False)
    log.roll()
    log.clean(last_records={})
    assert log.batch_lines() == ["0-0 0:a=1", "2-2 P1 abort"]
    assert [transaction.first_offset for transaction in log.segments[0].aborted] == [1]
    log.put(("b", "1"))
    log.roll()
    log.clean(last_records={})
    assert log.batch_lines() == ["0-0 0:a=1", f"2-2 P1 until+{DAY} abort", "3-3 3:b=1"]
    assert log.segments[0].aborted == []
    log.clock += DAY
    log.put(("b", "2"))
    log.roll()
    assert log.clean(last_records={}).markers_removed == 1
    assert log.batch_lines() == ["0-0 0:a=1", "4-4 4:b=2"]


def test_a_commit_marker_goes_when_nothing_of_its_transaction_is_left() -> None:
    log = Log()
    log.put(("a", "1"), producer=1, transactional=True)
    log.end(1, committed=True)
    log.roll()
    log.put(("a", "2"))
    log.roll()
    log.clean(last_records={})
    assert log.batch_lines() == ["1-1 P1 commit", "2-2 2:a=2"]
    for passed in (0, DAY):
        log.clock += passed
        log.put(("b", str(passed)))
        log.roll()
        log.clean(last_records={})
    assert log.batch_lines() == ["2-2 2:a=2", f"4-4 4:b={DAY}"]


def test_the_only_marker_of_a_producer_is_kept() -> None:
    log = Log()
    log.put(("a", "1"), producer=1, transactional=True)
    log.end(1, committed=True)
    log.put(("a", "2"))
    log.roll()
    for _ in range(3):
        log.clock += 2 * DAY
        log.clean(last_records={1: LastProducerRecord(None, 0)}, first_dirty_offset=0)
    assert log.batch_lines() == ["1-1 P1", "2-2 2:a=2"]


def test_a_transaction_that_ends_in_another_segment() -> None:
    log = Log()
    log.put(("a", "1"), producer=1, transactional=True)
    log.put(("b", "1"), producer=2, transactional=True)
    log.roll()
    log.put(("c", "1"), producer=1, transactional=True)
    log.end(1, committed=False)
    log.end(2, committed=True)
    log.roll()
    log.clean(last_records={}, segment_bytes=1)
    assert log.batch_lines() == ["1-1 P2 1:b=1", "3-3 P1 abort", "4-4 P2 commit"]
    assert [len(segment.aborted) for segment in log.segments] == [0, 1, 0]


def test_an_open_transaction_inside_a_segment_is_left_alone() -> None:
    """Were its records in the map, the value in front of it would be lost if it is aborted."""
    log = Log()
    log.put(("a", "1"), ("a", "2"))
    log.put(("a", "3"), producer=1, transactional=True)
    log.put(("b", None))
    log.roll()
    assert log.clean().end_offset == 2
    assert log.batch_lines() == ["0-1 1:a=2", "2-2 P1 2:a=3", "3-3 3:b=x"]
    log.end(1, committed=False)
    log.roll()
    log.clean(last_records={})
    assert log.batch_lines() == ["0-1 1:a=2", f"3-3 until+{DAY} 3:b=x", "4-4 P1 abort"]
