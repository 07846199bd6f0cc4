"""The log of one partition: offsets, reads, segments, times, deletion."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth

from konvene.codec import batches as rb
from konvene.codec.batches import Record, TimestampType, build, build_simple
from konvene.codec.compression import Compression
from konvene.codec.errors import CorruptBatch
from konvene.log.config import LogConfig
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import (
    DamagedLog,
    InvalidRecord,
    InvalidTimestamp,
    LogOffline,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from konvene.log.opening import LogCheckpoints, open_log
from konvene.log.partition import PartitionLog
from konvene.log.producers import Origin

NOW = 1_760_000_000_000


def opened(disk=None, *, clean: bool = False, **settings_) -> PartitionLog:
    log, _ = open_log(disk or MemoryDisk(), "/d/t-0", LogConfig(**settings_), clean=clean, now_ms=NOW)
    return log


def entries(data: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for header, view in rb.batches(data)
        for record in rb.records(view, header)
    ]


def test_offsets_are_given_in_order_and_read_back():
    """Each append begins where the last one ended; a read gives the records under those offsets."""
    log = opened()
    first = log.append_as_leader(bytearray(build_simple([(b"a", b"1"), (b"b", b"2")], NOW)), 3, NOW)
    second = log.append_built([(b"c", b"3")], 3, NOW)
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert entries(log.read(0, 10_000)) == [(0, b"1"), (1, b"2"), (2, b"3")]
    assert entries(log.read(1, 10_000)) == [(0, b"1"), (1, b"2"), (2, b"3")]
    assert entries(log.read(2, 10_000)) == [(2, b"3")]
    assert log.read(3, 10_000) == b""
    for header, view in rb.batches(log.read(0, 10_000)):
        rb.check(view, header)
        assert header.partition_leader_epoch == 3
    assert repr(log) == "PartitionLog(/d/t-0: 0..3, synced to 0, 1 segments)"


def test_offsets_outside_the_log_are_out_of_range():
    """A read before the start or after the end is an error."""
    log = opened()
    log.append_built([(b"a", b"1")] * 4, 0, NOW)
    log.delete_records_before(2)
    for offset in (-1, 1, 5):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)
    assert entries(log.read(2, 1)) == [(0, b"1"), (1, b"1"), (2, b"1"), (3, b"1")]


def test_a_read_stops_at_whole_batches_before_upto():
    """Neither the size nor `upto` ever cuts a batch, and `min_one` gives one that is too large."""
    log = opened()
    sizes = [log.append_built([(b"k", bytes(100 * n))], 0, NOW).size for n in range(1, 20)]
    assert log.read(0, sum(sizes[:3]) + 5) == log.read(0, sum(sizes[:3]))
    assert len(log.read(0, sum(sizes[:3]))) == sum(sizes[:3])
    assert len(log.read(4, 1)) == sizes[4]
    assert log.read(4, 1, min_one=False) == b""
    assert len(log.read(0, 10**6, upto=5)) == sum(sizes[:5])
    assert log.read(5, 10**6, upto=5) == b""


@settings(max_examples=depth.examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 900), st.integers(100, 5000), st.integers(0, 2000))
def test_reading_on_gives_every_record_once(seed, segment_extra, max_bytes, interval):
    """Whatever the sizes, segments and index: reading on gives the log, without gap or repeat."""
    chance = random.Random(seed)
    log = opened(segment_bytes=700 + segment_extra, index_interval_bytes=interval)
    written = []
    for _ in range(chance.randrange(1, 60)):
        pairs = [(b"k", bytes(chance.randrange(80))) for _ in range(chance.randrange(1, 6))]
        base = log.append_built(pairs, 0, NOW + len(written)).base_offset
        written += [(base + at, value) for at, (_, value) in enumerate(pairs)]
    got, offset = [], 0
    while offset < log.end_offset:
        part = entries(log.read(offset, max_bytes))
        assert part[0][0] <= offset
        got += part
        offset = part[-1][0] + 1
    assert got == written
    begin = chance.randrange(len(written))
    streamed = [
        record.offset for header, view in log.batches_from(begin) for record in rb.records(view, header)
    ]
    assert [offset for offset in streamed if offset >= begin] == list(range(begin, len(written)))


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30])
def test_read_rejects_a_batch_with_an_impossible_length(length: int):
    """The position is that of the batch, whether the read begins there or has to pass it."""
    disk = MemoryDisk()
    log = opened(disk)
    size = log.append_built([(b"a", b"1")], 0, NOW).size
    for _ in range(2):
        log.append_built([(b"a", b"1")], 0, NOW)
    path = log.active_segment.path
    data = bytearray(disk.read(path))
    data[size + 8 : size + 12] = length.to_bytes(4, "big", signed=True)
    file = disk.open(path)
    file.truncate(0)
    file.append(bytes(data))
    assert entries(log.read(0, size)) == [(0, b"1")]
    for offset in (1, 2):
        with pytest.raises(DamagedLog, match=f"damaged at byte {size}: "):
            log.read(offset, 10_000)


def test_a_refused_append_leaves_no_trace():
    """Each thing Kafka refuses is refused, and the log and its file stay as they were."""
    disk = MemoryDisk()
    log = opened(disk, max_message_bytes=500, segment_bytes=300)
    log.append_built([(b"a", b"1")], 0, NOW)
    before = disk.copy().read(log.active_segment.path)
    good = build_simple([(b"a", b"1")], NOW)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    gaps = build([Record(0, NOW, b"a", b"1"), Record(5, NOW, b"b", b"1")])
    marker = rb.end_marker(True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    lying = bytearray(build_simple([(b"a", b"1")] * 2, NOW, producer_id=-1))
    for data, error in (
        (build_simple([(b"a", bytes(600))], NOW), MessageTooLarge),
        (build_simple([(b"a", bytes(300))], NOW), RecordListTooLarge),
        (damaged, CorruptBatch),
        (gaps, InvalidRecord),
        (marker, InvalidRecord),
        (good + good, InvalidRecord),
        (b"", InvalidRecord),
        (build_simple([(b"a", b"1")], NOW + 3_600_001), InvalidTimestamp),
    ):
        with pytest.raises(error):
            log.append_as_leader(bytearray(data), 0, NOW)
    with pytest.raises(MessageTooLarge):
        log.append_built([(b"a", bytes(600))], 0, NOW)
    assert log.append_as_leader(lying, 0, NOW).base_offset == 1
    assert disk.read(log.active_segment.path)[: len(before)] == before


def test_a_compacted_topic_wants_keys():
    """A record without a key could never be compacted."""
    log = opened(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(InvalidRecord):
        log.append_as_leader(build_simple([(None, b"v")], NOW), 0, NOW)


def test_compressed_batches_are_kept_as_they_came():
    """The broker unpacks a compressed batch to look at it and stores the producer's bytes."""
    log = opened()
    for compression in Compression:
        data = bytearray(build([Record(0, NOW, b"k", bytes(5000))], compression=compression))
        log.append_as_leader(data, 0, NOW)
    headers = [header for header, _ in rb.batches(log.read(0, 10**6))]
    assert [header.compression for header in headers] == list(Compression)


def test_log_append_time_is_the_brokers():
    """Under LogAppendTime every record has the broker's time, and the checksum holds."""
    log = opened(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    appended = log.append_as_leader(bytearray(build_simple([(b"a", b"1")], 5)), 0, NOW)
    assert appended.log_append_time_ms == NOW
    for header, view in rb.batches(log.read(0, 1000)):
        rb.check(view, header)
        assert [record.timestamp for record in rb.records(view)] == [NOW]


def test_a_segment_ends_by_size_and_by_time():
    """`segment.bytes` is never passed, and records further apart than `segment.ms` do not share a file."""
    log = opened(segment_bytes=400, segment_ms=1000)
    for _ in range(10):
        log.append_built([(b"a", bytes(60))], 0, NOW)
    assert all(segment.size <= 400 for segment in log.segments)
    count = len(log.segments)
    log.append_built([(b"a", b"1")], 0, NOW + 1000)
    assert len(log.segments) == count
    log.append_built([(b"a", b"1")], 0, NOW + 1001)
    assert len(log.segments) == count + 1
    assert entries(log.read(log.end_offset - 1, 1)) == [(log.end_offset - 1, b"1")]


def test_the_first_record_at_a_time_is_found():
    """For any time, the answer is the first record not older, across segments and inside batches."""
    chance = random.Random(7)
    log = opened(segment_bytes=900, index_interval_bytes=100)
    times = []
    for _ in range(60):
        rows = [Record(at, NOW + chance.randrange(1000), b"k", b"v") for at in range(chance.randrange(1, 4))]
        log.append_as_leader(build(rows), 4, NOW)
        times += [row.timestamp for row in rows]
    for wanted in range(NOW - 2, NOW + 1003):
        expected = next((at for at, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (None if found is None else found.offset) == expected
        if found is not None:
            assert found == (times[found.offset], found.offset, 4)
    largest = log.max_timestamp()
    assert largest is not None
    assert (largest.timestamp, largest.offset) == (max(times), times.index(max(times)))
    assert opened().max_timestamp() is None


def test_records_before_a_new_start_are_deleted():
    """DeleteRecords moves the start; the segments wholly before it go, no other."""
    log = opened(segment_bytes=400, retention_ms=-1)
    for _ in range(20):
        log.append_built([(b"a", bytes(100))], 0, NOW)
    log.sync()
    bases = [segment.base_offset for segment in log.segments]
    assert log.delete_records_before(bases[3] + 1) == bases[3] + 1
    assert log.retain(NOW) == bases[:3]
    assert log.start_offset == bases[3] + 1
    assert log.delete_records_before(-1) == 20
    assert log.read(20, 100) == b""
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(21)


def test_old_segments_go_by_time_and_the_active_one_only_when_all_of_it_is_old():
    """Retention by time deletes whole segments; when even the newest is old, an empty one takes its place."""
    log = opened(segment_bytes=300, retention_ms=1000)
    for at in range(10):
        log.append_built([(b"a", bytes(100))], 0, NOW + at * 100)
    assert log.retain(NOW + 1000) == []
    log.sync()
    deleted = log.retain(NOW + 1350)
    assert deleted == [0, 1, 2, 3]
    assert log.start_offset == log.segments[0].base_offset == 4
    log.retain(NOW + 5000)  # everything is old: a new segment begins, the durable ones go
    log.sync()
    log.retain(NOW + 5000)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (10, 10, 1)
    assert log.append_built([(b"a", b"1")], 0, NOW + 5000).base_offset == 10


def test_a_reader_of_deleted_segments_gets_an_error(tmp_path):
    """A loader that is overtaken by retention gets OffsetOutOfRange; the log stays in use."""
    log, _ = open_log(
        RealDisk(), str(tmp_path / "t-0"), LogConfig(segment_bytes=300), clean=False, now_ms=NOW
    )
    for _ in range(10):
        log.append_built([(b"a", bytes(100))], 0, NOW)
    log.sync()
    stream = log.batches_from()
    next(stream)
    log.delete_records_before(9)
    log.retain(NOW)
    with pytest.raises(OffsetOutOfRange):
        list(stream)
    assert log.append_built([(b"a", b"1")], 0, NOW).base_offset == 10


def test_segments_go_by_size():
    """`retention.bytes` keeps at least that many bytes."""
    log = opened(segment_bytes=300, retention_bytes=700, retention_ms=-1)
    for _ in range(20):
        log.append_built([(b"a", bytes(100))], 0, NOW)
    log.sync()
    log.retain(NOW)
    assert 700 <= log.size < 1000
    assert log.segments[-1].base_offset < 20


def test_a_compacted_log_is_not_deleted_by_time():
    """Without `delete` in the policy, retention does nothing."""
    log = opened(segment_bytes=300, retention_ms=1, cleanup_policy=frozenset({"compact"}))
    for _ in range(20):
        log.append_built([(b"a", bytes(100))], 0, NOW)
    log.sync()
    assert log.retain(NOW + 10**9) == []


@settings(max_examples=depth.examples(40), deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32))
def test_a_truncated_log_is_as_if_the_rest_was_never_written(cut, seed):
    """After a cut, offsets, reads, epochs, producers and times are those of a log that ends there."""
    chance = random.Random(seed)
    disks = MemoryDisk(), MemoryDisk()
    whole, short = (opened(disk, segment_bytes=500, index_interval_bytes=60) for disk in disks)
    ends = [0]
    sequence = 0
    for at in range(20):
        data = build_simple(
            [(b"k", bytes(chance.randrange(60)))] * 2,
            NOW + at,
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        sequence += 2
        whole.append_as_leader(data, at // 4, NOW)
        ends.append(whole.end_offset)
        if whole.end_offset <= cut:
            short.append_as_leader(data, at // 4, NOW)
    whole.sync()
    whole.truncate_to(cut)
    assert whole.end_offset == short.end_offset
    assert whole.synced_offset == short.end_offset
    assert entries(whole.read(0, 10**6)) == entries(short.read(0, 10**6))
    assert whole.epochs.starts == short.epochs.starts
    assert whole.producers.snapshot() == short.producers.snapshot()
    assert whole.max_timestamp() == short.max_timestamp()
    reopened = opened(disks[0], segment_bytes=500, index_interval_bytes=60)
    assert reopened.end_offset == short.end_offset


def test_leader_epochs_end_where_the_next_begins():
    """OffsetForLeaderEpoch: an epoch's end, for the current one the log's, for a future one nothing."""
    log = opened()
    for epoch in (2, 2, 5, 9):
        log.append_built([(b"a", b"1")], epoch, NOW)
    assert log.leader_epoch_end(1) == (1, 0)
    assert log.leader_epoch_end(2) == (2, 2)
    assert log.leader_epoch_end(3) == (2, 2)
    assert log.leader_epoch_end(5) == (5, 3)
    assert log.leader_epoch_end(9) == (9, 4)
    assert log.leader_epoch_end(10) == (-1, -1)


def test_sync_returns_the_durable_offset():
    """What was appended before a sync survives a power cut, what came after need not."""
    disk = MemoryDisk()
    log = opened(disk)
    log.append_built([(b"a", b"1")], 0, NOW)
    assert log.synced_offset == 0
    assert log.sync() == 1
    disk.sync_directory("/d")
    disk.sync_directory("/")
    log.append_built([(b"a", b"2")], 0, NOW)
    after, _ = open_log(disk.crash(), "/d/t-0", LogConfig(), clean=False, now_ms=NOW)
    assert entries(after.read(0, 1000)) == [(0, b"1")]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_comes_back_as_it_was_left(tmp_path, clean: bool):
    """Closed properly or not: records, times, producers, epochs and aborted transactions are there."""
    disk = RealDisk()
    path = str(tmp_path / "t-0")
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log, _ = open_log(disk, path, config, clean=False, now_ms=NOW)
    for at in range(30):
        log.append_built(
            [(b"k", bytes(50))], at // 10, NOW + at, producer_id=7, producer_epoch=0, transactional=True
        )
        if at % 3 == 2:
            log.append_marker(
                at % 2 == 0, at // 10, NOW + at, producer_id=7, producer_epoch=0, coordinator_epoch=1
            )
    log.append_built([(b"k", b"open")], 3, NOW, producer_id=8, producer_epoch=1, transactional=True)
    log.sync()
    log.close(clean=clean)
    again, found = open_log(
        disk,
        path,
        config,
        clean=clean,
        now_ms=NOW,
        checkpoints=LogCheckpoints(recovery_point=0 if clean else log.segments[2].base_offset),
    )
    assert found.clean is clean
    assert found.cut_bytes == 0
    assert again.end_offset == log.end_offset == again.synced_offset
    assert [*again.batches_from()] == [*log.batches_from()]
    assert again.max_timestamp() == log.max_timestamp()
    assert again.aborted == log.aborted != []
    assert again.epochs.starts == log.epochs.starts
    assert again.producers.snapshot() == log.producers.snapshot()
    assert (
        again.last_stable_offset(again.end_offset)
        == log.last_stable_offset(log.end_offset)
        == log.end_offset - 1
    )
    for at in range(again.end_offset):
        assert again.read(at, 1) == log.read(at, 1)


@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"]
)
@pytest.mark.parametrize("how", ["missing", "torn", "garbage"])
def test_what_is_derived_is_derived_again(tmp_path, suffix: str, how: str):
    """A missing, torn or garbled index, snapshot or epoch file costs time and changes no answer."""
    disk = RealDisk()
    path = tmp_path / "t-0"
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log, _ = open_log(disk, str(path), config, clean=False, now_ms=NOW)
    for at in range(40):
        log.append_built([(b"k", bytes(50))], at // 10, NOW + at)
    log.close()
    for file in path.iterdir():
        if file.name.endswith(suffix):
            if how == "missing":
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:-1] if how == "torn" else b"\xff" * 24)
    again, _ = open_log(disk, str(path), config, clean=True, now_ms=NOW)
    assert again.end_offset == 40
    for at in range(40):
        assert again.read(at, 1) == log.read(at, 1)
        assert again.offset_for_timestamp(NOW + at) == (NOW + at, at, at // 10)
    assert again.epochs.starts == log.epochs.starts


def test_after_a_failed_write_nothing_is_acknowledged():
    """One failed append takes the log out of use for good; what was written before comes back."""
    disk = MemoryDisk()
    log = opened(disk)
    log.append_built([(b"a", b"1")], 0, NOW)
    disk.fail[disk.calls + 1] = 28
    for _ in range(2):
        with pytest.raises(LogOffline):
            log.append_built([(b"a", b"2")], 0, NOW)
    with pytest.raises(LogOffline):
        log.sync()
    again = opened(disk.copy())
    assert entries(again.read(0, 1000)) == [(0, b"1")]


def test_a_coordinator_may_append_several_batches_at_once():
    """Only a client is held to one batch."""
    log = opened()
    two = build_simple([(b"a", b"1")], NOW) + build_simple([(b"b", b"2"), (b"c", b"3")], NOW)
    appended = log.append_as_leader(two, 0, NOW, origin=Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert entries(log.read(0, 1000)) == [(0, b"1"), (1, b"2"), (2, b"3")]


def test_another_thread_may_sync_while_this_one_appends_and_rolls(tmp_path):
    """`synced_offset` only grows, never passes what was written, and all of it comes back, indexes too."""
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200)
    log, _ = open_log(RealDisk(max_open=16), str(tmp_path / "t-0"), config, clean=False, now_ms=NOW)
    stop = threading.Event()
    seen: list[int] = []

    def syncing() -> None:
        while not stop.is_set():
            seen.append(log.sync())

    thread = threading.Thread(target=syncing)
    thread.start()
    for at in range(2000):
        log.append_built([(b"k", b"%d" % at)], at // 500, NOW + at)
        assert log.synced_offset <= log.end_offset
    stop.set()
    thread.join()
    assert log.sync() == 2000
    assert seen == sorted(seen)
    log.close()
    again, found = open_log(RealDisk(), str(tmp_path / "t-0"), config, clean=False, now_ms=NOW)
    assert (again.end_offset, found.cut_bytes) == (2000, 0)
    assert again.epochs.starts == [(0, 0), (1, 500), (2, 1000), (3, 1500)]
    assert all(segment.load_indexes() for segment in again.segments[:-1])


def test_timestamp_at_an_offset_is_that_of_its_batch():
    """The first timestamp of the batch; none at the end; from the log's start if records were deleted."""
    log = opened(segment_bytes=300)
    for i in range(10):
        pairs = [(b"k", b"v" * 50), (b"k", b"w")]
        log.append_as_leader(bytearray(build_simple(pairs, NOW + i)), 0, NOW)
    assert len(log.segments) > 2
    assert [log.timestamp_at(offset) for offset in range(20)] == [NOW + i // 2 for i in range(20)]
    assert log.timestamp_at(20) is None
    log.delete_records_before(7)
    assert log.timestamp_at(0) == NOW + 3


def test_timestamp_at_an_offset_is_the_append_time_if_the_topic_has_that():
    log = opened(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append_as_leader(bytearray(build_simple([(b"a", b"1")], NOW - 5000)), 0, NOW)
    assert log.timestamp_at(0) == NOW


def test_batch_without_timestamps_has_no_timestamp():
    log = opened()
    log.append_as_leader(bytearray(build([Record(0, -1, b"a", b"1")])), 0, NOW)
    assert log.timestamp_at(0) is None
