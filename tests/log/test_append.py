"""Validation and conversion of a producer's batch on append: timestamps, compression, reported errors."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from konvene.codec import batches as rb
from konvene.codec.batches import BatchHeader, Record, TimestampType, build, build_simple
from konvene.codec.compression import Compression
from konvene.log import validation
from konvene.log.config import LogConfig
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge, Refused
from konvene.log.opening import open_log
from konvene.log.partition import PartitionLog
from konvene.log.producers import Origin

NOW = 1_760_000_000_000
HOUR = 3_600_000
COMPACT = frozenset({"compact"})


def opened(**settings: Any) -> PartitionLog:
    log, _ = open_log(MemoryDisk(), "/d/t-0", LogConfig(**settings), clean=False, now_ms=NOW)
    return log


def stored(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches, checksums looked at."""
    found = []
    for header, view in rb.batches(log.read(0, 10**9)):
        rb.check(view, header)
        found.append((header, rb.records(view, header)))
    return found


def claiming(batch: bytes, max_timestamp: int) -> bytearray:
    """The batch with another newest timestamp in its header, and a checksum to match."""
    data = bytearray(batch)
    rb.stamp(data, 0, -1, max_timestamp=max_timestamp)
    return data


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("claimed", [NOW - HOUR, NOW + 10**12])
def test_a_lying_header_does_not_mislead_who_looks_for_a_time(compression: Compression, claimed: int) -> None:
    """Times are found where the records have them, in the index as well as in the batch."""
    log = opened(index_interval_bytes=1)
    for at in range(4):
        batch = build(
            [Record(0, NOW + at, b"a", b"1"), Record(1, NOW + 10 * at, b"b", b"2")], compression=compression
        )
        log.append_as_leader(claiming(batch, claimed), 0, NOW)
    assert [header.max_timestamp - NOW for header, _ in stored(log)] == [0, 10, 20, 30]
    newest = log.max_timestamp()
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (NOW + 30, 7)
    for wanted, offset in ((NOW, 0), (NOW + 5, 3), (NOW + 15, 5), (NOW + 30, 7)):
        found = log.offset_for_timestamp(wanted)
        assert found is not None
        assert found.offset == offset
    assert log.offset_for_timestamp(NOW + 31) is None


def test_a_sound_header_is_left_alone() -> None:
    """Then only what stands in front of the checksum changes."""
    log = opened()
    data = build([Record(0, NOW + 3, b"a", b"1"), Record(1, NOW, b"b", b"2")], compression=Compression.ZSTD)
    log.append_as_leader(bytearray(data), 4, NOW)
    written = bytes(log.read(0, 10**6))
    assert (written[:12], written[16:]) == (data[:12], data[16:])


@pytest.mark.parametrize(
    ("ago", "ahead", "taken"),
    [(HOUR, 0, True), (HOUR + 1, 0, False), (0, 1000, True), (0, 1001, False), (-1, 0, True)],
)
def test_the_bounds_of_time_are_within(ago: int, ahead: int, taken: bool) -> None:
    """A record may be exactly as old and as new as configured; -1 is no timestamp and always allowed."""
    log = opened(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=1000)
    first = -1 if ago == -1 else NOW - ago
    data = build([Record(0, first, b"a", b"1"), Record(1, NOW + ahead, b"b", b"2")])
    if taken:
        assert log.append_as_leader(data, 0, NOW).last_offset == 1
    else:
        with pytest.raises(InvalidTimestamp) as raised:
            log.append_as_leader(data, 0, NOW)
        assert [index for index, _ in raised.value.record_errors] == [0 if ago else 1]
        assert log.end_offset == 0


def test_the_number_of_reported_faults_is_limited() -> None:
    """All are counted, whatever the batch unpacks to."""
    log = opened(cleanup_policy=COMPACT)
    count = 3 * validation.MOST_RECORD_ERRORS
    data = build([Record(i, NOW, None, b"") for i in range(count)], compression=Compression.ZSTD)
    with pytest.raises(InvalidRecord) as raised:
        log.append_as_leader(data, 0, NOW)
    assert f"due to {count} record errors in total" in str(raised.value)
    assert [index for index, _ in raised.value.record_errors] == list(range(validation.MOST_RECORD_ERRORS))


def test_records_that_may_be_here_are_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a batch that could be at fault is checked record by record."""
    monkeypatch.setattr(validation, "_examine", lambda *_, **__: pytest.fail("looked at twice"))
    log = opened(cleanup_policy=COMPACT, message_timestamp_before_max_ms=HOUR)
    log.append_as_leader(build([Record(i, NOW + i, b"k%d" % i, b"v" * i) for i in range(200)]), 0, NOW)
    assert log.end_offset == 200


def rows(seed: int) -> list[Record]:
    chance = random.Random(seed)
    return [
        Record(i, NOW + chance.randrange(-9, 9), chance.choice([None, b"k"]), b"v" * 50, (("h", None),))
        for i in range(chance.randrange(1, 90))
    ]


@pytest.mark.parametrize("target", Compression)
@pytest.mark.parametrize("source", Compression)
def test_records_are_the_same_in_another_codec(source: Compression, target: Compression) -> None:
    """Times, keys, values and headers stay; so do the producer's bytes where the codec is the topic's."""
    log = opened(compression=target)
    written = []
    for seed in range(8):
        entries = rows(seed)
        data = build(
            entries, compression=source, producer_id=5, producer_epoch=1, base_sequence=len(written),
            base_offset=0,
        )  # fmt: skip
        before = log.end_offset
        log.append_as_leader(bytearray(data), 0, NOW)
        written += [entry._replace(offset=before + entry.offset) for entry in entries]
        if source is target:
            assert bytes(log.read(before, 10**6))[61:] == data[61:]
    found = stored(log)
    assert [entry for _, entries in found for entry in entries] == written
    for header, entries in found:
        assert header.compression is target
        assert header.base_timestamp == entries[0].timestamp
        assert header.max_timestamp == max(entry.timestamp for entry in entries)
        assert (header.producer_id, header.producer_epoch) == (5, 1)
        assert header.base_sequence == header.base_offset


def test_the_level_is_the_topics() -> None:
    """What gzip writes at level 1 and at level 9 differs, and the topic's level is used."""
    text = bytes(random.Random(3).choice(b"abcd") for _ in range(20_000))
    data = build_simple([(b"k", text)], NOW)
    for level in (1, 9):
        log = opened(compression=Compression.GZIP, compression_level=level)
        log.append_as_leader(data, 0, NOW)
        assert bytes(log.read(0, 10**6))[61:] == zlib.compress(data[61:], level, wbits=31)


def test_size_limits_apply_to_the_written_batch() -> None:
    """A batch that is too large for its segment, or for a batch, once it is unpacked is refused."""
    data = build_simple([(b"k", bytes(5000))], NOW)
    packed = build([Record(0, NOW, b"k", bytes(5000))], compression=Compression.GZIP)
    for settings, error in (
        ({"max_message_bytes": 1000}, MessageTooLarge),
        ({"segment_bytes": 1000}, RecordListTooLarge),
    ):
        log = opened(compression=Compression.NONE, **settings)
        for found in (data, packed):
            with pytest.raises(error):
                log.append_as_leader(found, 0, NOW)
        assert log.end_offset == 0
    tight = opened(compression=Compression.GZIP, segment_bytes=1000)
    assert tight.append_as_leader(data, 0, NOW).size < 1000


def test_a_duplicate_is_answered_with_the_time_of_the_first() -> None:
    """As by Kafka: also where the time is the producer's."""
    log = opened(compression=Compression.LZ4)
    data = build([Record(0, NOW - 7, b"k", b"v")], producer_id=3, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(data, 0, NOW)
    again = log.append_as_leader(data, 0, NOW + 5)
    assert (first.log_append_time_ms, again.log_append_time_ms) == (-1, NOW - 7)
    assert (again.base_offset, again.duplicate, log.end_offset) == (0, True, 1)


def test_a_coordinators_batches_follow_the_topics_codec() -> None:
    """Several at once, some of which have it already; markers are never compressed."""
    log = opened(compression=Compression.ZSTD)
    plain = build_simple([(b"a", b"1")] * 2, NOW)
    packed = build([Record(0, NOW, b"b", b"2")], compression=Compression.ZSTD)
    marker = rb.end_marker(True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    done = log.append_as_leader(plain + packed + marker, 0, NOW, origin=Origin.COORDINATOR)
    assert (done.base_offset, done.last_offset, log.end_offset) == (0, 3, 4)
    found = stored(log)
    assert [header.compression for header, _ in found] == [
        Compression.ZSTD,
        Compression.ZSTD,
        Compression.NONE,
    ]
    assert [[entry.offset for entry in entries] for _, entries in found] == [[0, 1], [2], [3]]


def test_the_brokers_time_and_another_codec() -> None:
    log = opened(compression=Compression.SNAPPY, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert log.append_as_leader(build_simple([(b"a", b"1")], 5), 0, NOW).log_append_time_ms == NOW
    ((header, (entry,)),) = stored(log)
    assert (header.base_timestamp, header.max_timestamp, entry.timestamp) == (5, NOW, NOW)


def test_a_refusal_leaves_the_producers_bytes_alone() -> None:
    """The owner of the buffer may read it again."""
    log = opened(segment_bytes=100, message_timestamp_after_max_ms=0)
    data = bytearray(build_simple([(b"k", b"v")], NOW + 1))
    before = bytes(data)
    with pytest.raises(Refused):
        log.append_as_leader(data, 9, NOW)
    assert data == before
