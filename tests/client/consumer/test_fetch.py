"""Records of a partition's Fetch response: from the position on, without aborted records."""

from __future__ import annotations

import pytest

from konvene.client.consumer.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    _keep,
    _unpack,
    read_error,
    timestamp_type,
)
from konvene.client.errors import CorruptRecord, KafkaError
from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import Record, TimestampType, build, build_simple, end_marker
from konvene.errors import Errors
from konvene.messages.fetch import AbortedTransaction, PartitionData

TP = TopicPartition("t", 0)


def batch(base: int, *values: bytes, producer: int = -1, transactional: bool = False) -> bytes:
    return build_simple(
        [(None, v) for v in values], 5, base_offset=base, producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0, base_sequence=-1 if producer < 0 else 0,
        transactional=transactional,
    )  # fmt: skip


def unpack(
    data: bytes,
    position: int = 0,
    level: int = READ_UNCOMMITTED,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> Fetched:
    return _unpack(TP, position, PartitionData(records=data, aborted_transactions=aborted), level)


def values(fetched: Fetched) -> list[bytes | None]:
    return [r.value for r in fetched.records]


def test_records_before_the_position_are_dropped() -> None:
    """A broker returns the whole batch that contains the position."""
    fetched = unpack(batch(10, b"a", b"b", b"c") + batch(13, b"d"), position=12)
    assert values(fetched) == [b"c", b"d"]
    assert fetched.next_offset == 14
    assert repr(fetched) == "Fetched(t-0, 2 records, then 14)"


@pytest.mark.parametrize("kept", [0, 5, 17, 60, 62])
def test_a_truncated_batch_is_left_for_the_next_fetch(kept: int) -> None:
    fetched = unpack(batch(0, b"a") + batch(1, b"b")[:kept])
    assert (values(fetched), fetched.next_offset) == ([b"a"], 1)


def test_an_empty_response_keeps_the_position() -> None:
    assert unpack(b"", position=9).next_offset == 9


def test_records_before_a_damaged_batch_are_returned() -> None:
    """At the damaged batch itself the error code is CORRUPT_MESSAGE, as if the broker had found the
    damage."""
    data = bytearray(batch(0, b"a") + batch(1, b"b"))
    data[-2] ^= 1
    fetched = unpack(bytes(data))
    assert (values(fetched), fetched.error_code, fetched.next_offset) == ([b"a"], Errors.NONE, 1)
    fetched = unpack(bytes(data), position=1)
    assert (values(fetched), fetched.error_code, fetched.next_offset) == ([], Errors.CORRUPT_MESSAGE, 1)
    error = read_error(fetched, 1)
    assert isinstance(error, CorruptRecord) and not error.retriable
    assert str(error).startswith("reading t-0 at offset 1: CORRUPT_MESSAGE: the checksum of the batch")


def test_damage_that_the_broker_reports_is_the_same_error() -> None:
    answer = PartitionData(error_code=Errors.CORRUPT_MESSAGE, records=b"")
    error = read_error(_unpack(TP, 4, answer, READ_UNCOMMITTED), 4)
    assert isinstance(error, CorruptRecord)
    assert str(error) == "reading t-0 at offset 4: CORRUPT_MESSAGE: the log of the broker is damaged"
    other = _keep(TP, 4, PartitionData(error_code=Errors.TOPIC_AUTHORIZATION_FAILED, records=b""))
    assert isinstance(read_error(other, 4), KafkaError)


def test_markers_are_dropped_and_aborted_records_with_read_committed() -> None:
    log = (
        batch(0, b"plain")
        + batch(1, b"aborted", producer=7, transactional=True)
        + batch(2, b"committed", producer=8, transactional=True)
        + end_marker(
            False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1, base_offset=3
        )
        + end_marker(
            True, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1, base_offset=4
        )
        + batch(5, b"later", producer=7, transactional=True)
    )
    aborted = (AbortedTransaction(producer_id=7, first_offset=1),)
    everything = unpack(log)
    assert values(everything) == [b"plain", b"aborted", b"committed", b"later"]
    committed = unpack(log, level=READ_COMMITTED, aborted=aborted)
    assert values(committed) == [b"plain", b"committed", b"later"]
    assert everything.next_offset == committed.next_offset == 6
    raw = _keep(TP, 0, PartitionData(records=log, aborted_transactions=aborted), READ_COMMITTED)
    data = [header.base_offset for header, _ in raw.batches if not header.is_control]
    assert data == sorted({record.offset for record in committed.records})
    assert raw.next_offset == 6


def test_raw_batches_are_returned_unchanged() -> None:
    """Whole batches from the position on, including control batches and corrupt ones."""
    damaged = bytearray(batch(12, b"c", producer=7, transactional=True))
    damaged[-2] ^= 1
    first, second = batch(10, b"a", b"b"), bytes(damaged)
    answer = PartitionData(records=batch(8, b"x", b"y") + first + second + batch(13, b"d")[:-1])
    fetched = _keep(TP, 11, answer)
    assert b"".join(bytes(each) for _, each in fetched.batches) == first + second
    assert [header.base_offset for header, _ in fetched.batches] == [10, 12]
    assert repr(fetched) == "FetchedBatches(t-0, 2 batches, then 13)"


def test_offsets_with_log_append_time_are_reported() -> None:
    """Adjacent batches are one range; a record knows its timestamp type by its offset."""

    def appended(base: int, count: int) -> bytes:
        rows = [Record(base + i, 5, None, b"x") for i in range(count)]
        kind = TimestampType.LOG_APPEND_TIME
        return build(rows, timestamp_type=kind, log_append_time_ms=7)

    fetched = unpack(appended(0, 2) + appended(2, 1) + batch(3, b"a") + appended(4, 1))
    assert fetched.log_append_time == (range(3), range(4, 5))
    types = [timestamp_type(offset, fetched.log_append_time).label for offset in range(5)]
    assert types == ["LogAppendTime", "LogAppendTime", "LogAppendTime", "CreateTime", "LogAppendTime"]
    assert unpack(batch(0, b"a")).log_append_time == ()


def test_raw_batches_end_before_a_batch_without_a_valid_header() -> None:
    data = bytearray(batch(0, b"a") + batch(1, b"b"))
    data[len(data) // 2 + 16] = 0x7F  # The magic of the second batch.
    assert _keep(TP, 0, PartitionData(records=bytes(data))).next_offset == 1
    fetched = _keep(TP, 1, PartitionData(records=bytes(data)))
    assert (fetched.error_code, fetched.batches) == (Errors.CORRUPT_MESSAGE, [])
    assert "magic" in fetched.damage or "format" in fetched.damage
