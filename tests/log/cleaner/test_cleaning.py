"""One cleaning of a log: what a reader of keys sees is the same, and all that a broker relies on stays."""

from __future__ import annotations

import errno
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.log.cleaner.written import DAY, HOME, NOW, Log, run

from konvene.codec import batches
from konvene.codec.batches import BatchHeader, Record
from konvene.log.cleaner import cleaning
from konvene.log.cleaner.cleaning import CHUNK_BYTES, clean, group_by_size
from konvene.log.cleaner.contract import CLEANED, CleanedSegment, LastProducerRecord, SourceSegment
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import DamagedLog
from konvene.log.index import OffsetIndex, TimeIndex


def cleaned_names(log: Log) -> list[str]:
    return [name for name in log.disk.listdir(HOME) if name.endswith(CLEANED)]


def three_segments() -> Log:
    log = Log()
    for round_ in range(3):
        log.put(*((f"k{number}", f"{round_}" * 50) for number in range(round_, 40)))
        log.put(("once", None), (f"r{round_}", "1"))
        log.roll()
    return log


# segments -------------------------------------------------------------------------------------


def source(base: int, following: int, size: int, index: int = 0, times: int = 0) -> SourceSegment:
    return SourceSegment(base, following, "", size, index, times, 0)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], []),
        ([source(0, 5, 40), source(5, 9, 60), source(9, 12, 1)], [[0, 5], [9]]),
        ([source(0, 5, 101), source(5, 9, 60)], [[0], [5]]),
        ([source(0, 5, 1, index=60), source(5, 9, 1, index=60)], [[0], [5]]),
        ([source(0, 5, 1, times=60), source(5, 9, 1, times=60)], [[0], [5]]),
        ([source(0, 5, 1), source(5, 2**31, 1), source(2**31, 2**31 + 1, 1)], [[0, 5], [2**31]]),
        ([source(0, 2**31, 0), source(2**31, 2**32, 0), source(2**32, 2**32 + 1, 1)], [[0, 2**31], [2**32]]),
        ([source(0, 5, 1), source(5, 20, 1), source(20, 30, 1)], [[0, 5]]),
    ],
)
def test_segments_are_put_together_as_far_as_one_may_hold_them(
    sources: list[SourceSegment], expected: list[list[int]]
) -> None:
    task = replace(Log().task(), sources=tuple(sources), segment_bytes=100, segment_index_bytes=100)
    end = 20 if expected == [[0, 5]] else 1 << 40
    assert [[one.base_offset for one in group] for group in group_by_size(task, end)] == expected


def test_a_cleaned_segment_lists_the_segments_that_it_replaces() -> None:
    log = three_segments()
    log.segments[1].modified_ms = NOW + 5
    task = log.task(segment_bytes=len(log.segments[0].data) + len(log.segments[1].data))
    progress, groups, stats = run(log.disk, task)
    bases = [segment.base_offset for segment in log.segments]
    assert [(group.base_offset, group.next_offset, group.replaces) for group in groups] == [
        (bases[0], bases[2], (bases[0], bases[1])),
        (bases[2], bases[3], (bases[2],)),
    ]
    path = f"{HOME}/{0:020d}.log{CLEANED}"
    assert log.disk.size(path) == groups[0].size
    assert log.disk.modified_ms(path) == groups[0].modified_ms == NOW + 5
    assert sum(result.bytes_written for result in progress) == sum(group.size for group in groups)
    assert stats.segments == groups
    assert stats.bytes_read == stats.map_bytes_read == sum(len(segment.data) for segment in log.segments)


def test_a_segment_of_which_nothing_is_left_is_an_empty_one() -> None:
    log = Log()
    log.put(("a", "1"))
    log.roll()
    log.put(("a", "2"))
    log.roll()
    stats = log.clean(segment_bytes=1)
    assert [group.size for group in stats.segments] == [0, len(log.segments[1].data)]
    assert log.batch_lines() == ["1-1 1:a=2"]


def test_the_indexes_find_what_is_there() -> None:
    log = Log()
    for number in range(60):
        log.clock += 10
        log.put((f"k{number % 50}", "v" * 100), (f"l{number}", "v"))
    log.roll()
    log.clean(index_interval_bytes=500)
    segment = log.segments[0]
    assert segment.indexes is not None
    offsets = OffsetIndex.load(0, segment.indexes[0], len(segment.data))
    times = TimeIndex.load(0, segment.indexes[1])
    starts, at = {}, 0
    for header, data in log.batches():
        starts[at] = header
        at += len(data)
    assert len(offsets) > 10
    for offset in range(120):
        assert starts[offsets.lookup(offset)].base_offset <= offset
    assert times.last == (log.clock, 119)


def test_a_gap_in_offsets_is_passed() -> None:
    log = Log()
    log.put(("a", "1"))
    log.next_offset = 40
    log.put(("a", "2"))
    log.next_offset = 90
    log.roll()
    assert log.clean().end_offset == 90
    assert log.batch_lines() == ["40-40 40:a=2"]


# the map --------------------------------------------------------------------------------------


def test_a_small_map_takes_a_part_at_a_time() -> None:
    log = Log()
    for number in range(200):
        log.put(*((f"key-{number % 100}-{at}", str(number)) for at in range(7)))
    log.roll()
    expected = {record.key: record for record in log.records()}
    ends = [log.clean(map_bytes=8000).end_offset]
    while ends[-1] < 1400:
        ends.append(log.clean(map_bytes=8000).end_offset)
        assert ends[-1] > ends[-2]
    assert len(ends) > 4
    assert any(end % 7 for end in ends), "it was never full inside a batch"
    assert sorted(expected.values()) == log.records()


def test_nothing_is_done_where_nothing_is_dirty() -> None:
    log = Log()
    assert run(log.disk, log.task()) == ([], [], clean_nothing(log))
    log.put(("a", "1"))
    log.roll()
    log.clean()
    assert log.clean().end_offset == 1


def clean_nothing(log: Log) -> object:
    return run(log.disk, log.task(), write=False)[2]


def test_memory_is_the_map_and_a_piece(tmp_path: Path) -> None:
    """Ten megabytes of log, one of keys: what is held at most is not much more than the map may take."""
    disk = RealDisk()
    disk.mkdir(str(tmp_path))
    log = Log()
    for number in range(10_000):
        log.put((f"key-{number % 5000}", "v" * 1000))
    log.roll()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(log.segments[0].data)
    task = log.task(map_bytes=400_000, directory=str(tmp_path))
    task = replace(task, sources=(task.sources[0]._replace(path=str(path)),))
    del log
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        _, groups, stats = run(disk, task)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stats.end_offset < 10_000, "the map was meant to be full"
    assert groups[0].size > 5 << 20
    assert peak - before < 400_000 + 6 * CHUNK_BYTES


# progress, failures ---------------------------------------------------------------------------


def test_it_gives_way_after_each_piece() -> None:
    log = Log()
    for _ in range(8):
        log.put(*((f"k{number}", "v" * 1000) for number in range(90)))
    log.roll()
    progress, _, stats = run(log.disk, log.task())
    assert len(progress) >= 2 * (len(log.segments[0].data) // CHUNK_BYTES)
    assert max(result.bytes_read for result in progress) <= CHUNK_BYTES
    assert sum(result.bytes_read for result in progress) == stats.bytes_read + stats.map_bytes_read


def test_a_batch_may_be_larger_than_a_piece() -> None:
    log = Log()
    log.put(("a", "1"), ("b", "v" * (3 * CHUNK_BYTES)))
    log.put(("a", "2"))
    log.roll()
    log.clean()
    assert [(record.offset, record.key) for record in log.records()] == [(1, b"b"), (2, b"a")]


def test_it_counts_without_writing() -> None:
    log = three_segments()
    task = log.task()
    names = log.disk.listdir(HOME)
    _, groups, stats = run(log.disk, task, write=False)
    assert not groups
    assert log.disk.listdir(HOME) == names
    _, groups, written = run(log.disk, task)
    assert stats == written
    assert stats.segments == groups


def test_statistics_have_durations_if_there_is_a_clock() -> None:
    ticks = iter(range(10, 100, 10))
    log = three_segments()
    cleaner = clean(log.disk, log.task(), False, lambda: next(ticks))
    with pytest.raises(StopIteration) as done:
        while True:
            next(cleaner)
    assert (done.value.value.index_s, done.value.value.elapsed_s) == (10, 20)


@pytest.mark.parametrize("at", ["first byte of a record", "length", "magic", "cut", "record size"])
@pytest.mark.parametrize("dirty", [True, False])
def test_damage_is_reported_with_its_position(at: str, dirty: bool) -> None:
    log = three_segments()
    first = len(log.batches()[0][1])
    data = log.segments[0].data
    if at == "cut":
        del data[-3:]
    elif at == "length":
        data[first + 8 : first + 12] = (7).to_bytes(4, "big")
    else:
        data[first + {"magic": 16, "record size": 61}.get(at, 62)] ^= 0xFF
    log.first_dirty = 0 if dirty else log.segments[1].base_offset
    with pytest.raises(DamagedLog) as damage:
        run(log.disk, log.task())
    assert damage.value.position == first
    assert not cleaned_names(log)


def test_records_that_do_not_agree_are_damage_even_if_the_checksum_holds() -> None:
    log = Log()
    log.put(("a", "1"), ("b", "2"))
    header, batch = log.batches()[0]
    log.segments[0].data[:] = recounted(batch, header.record_count + 1)
    log.roll()
    with pytest.raises(DamagedLog):
        run(log.disk, log.task())


def recounted(batch: bytes, count: int) -> bytes:
    """The batch with another number of records, and the checksum that goes with it."""
    changed = bytearray(batch)
    changed[57:61] = count.to_bytes(4, "big")
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_whatever_fails_leaves_no_draft_of_that_group_and_the_log_as_it_was() -> None:
    log = three_segments()
    assert isinstance(log.disk, MemoryDisk)
    task = log.task(segment_bytes=1)
    before = log.disk.calls
    run(log.disk, task)
    steps = log.disk.calls - before
    assert steps > 40
    for name in cleaned_names(log):
        log.disk.remove(f"{HOME}/{name}")
    names = [name for name in log.disk.listdir(HOME) if not name.endswith(CLEANED)]
    for step in range(1, steps + 1):
        log.disk.fail = {log.disk.calls + step: errno.EIO}
        groups: list[CleanedSegment] = []
        try:
            for result in clean(log.disk, task):
                if isinstance(result, CleanedSegment):
                    groups.append(result)
        except OSError as error:
            assert error.errno == errno.EIO
        log.disk.fail = {}
        assert [name for name in log.disk.listdir(HOME) if not name.endswith(CLEANED)] == names
        whole = {f"{group.base_offset:020d}" for group in groups}
        assert {name[:20] for name in cleaned_names(log)} == whole
        for name in cleaned_names(log):
            log.disk.remove(f"{HOME}/{name}")


def test_a_cleaned_segment_is_durable_when_it_is_reported() -> None:
    log = three_segments()
    assert isinstance(log.disk, MemoryDisk)
    task = log.task()
    log.disk.sync_directory("/")
    for result in clean(log.disk, task):
        if isinstance(result, CleanedSegment):
            log.disk.sync_directory(HOME)
            found = log.disk.crash()
            assert len(cleaned_names(log)) == 3
            for name in cleaned_names(log):
                assert found.read(f"{HOME}/{name}") == log.disk.read(f"{HOME}/{name}")


def test_one_that_is_closed_removes_what_it_has_not_finished() -> None:
    log = three_segments()
    cleaner = clean(log.disk, log.task(segment_bytes=1))
    groups = 0
    while groups < 1 or len(cleaned_names(log)) < 4:
        groups += isinstance(next(cleaner), CleanedSegment)
    cleaner.close()
    assert [name[:20] for name in cleaned_names(log)] == [f"{0:020d}"] * 3


def test_a_power_cut_runs_nothing_more() -> None:
    log = three_segments()
    assert isinstance(log.disk, MemoryDisk)
    task = log.task()
    log.disk.cut_power_at = log.disk.calls + 12
    with pytest.raises(PowerCut):
        run(log.disk, task)
    assert log.disk.calls == log.disk.cut_power_at


# properties -----------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c", "d", None])
VALUES = st.sampled_from(["1", "22", "v" * 200, None, None])
BATCH = st.tuples(
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
    st.sampled_from([0, 0, 0, 1, 4]),
    st.sampled_from([-1, -1, 1, 2, 3]),
)
STEP = st.one_of(
    BATCH,
    st.just("roll"),
    st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([2, 3])),
    st.sampled_from(["clean", "clean small", "later"]),
)


def play(steps: list[object]) -> Log:
    """Batches of plain and transactional producers, among them cleanings that `promises` watches."""
    log = Log()
    for step in steps:
        if step == "roll":
            if log.segments[-1].data:
                log.roll()
        elif step == "later":
            log.clock += DAY + 1
        elif step in ("clean", "clean small"):
            promises(log, 600 if step == "clean small" else 1 << 20)
        else:
            assert isinstance(step, tuple)
            if step[0] in ("commit", "abort"):
                if step[1] in log._open:
                    log.end(step[1], step[0] == "commit")
            else:
                pairs, compression, producer = step
                log.put(*pairs, compression=compression, producer=producer, transactional=producer > 1)
    return log


def read_committed(log: Log) -> dict[bytes, Record]:
    """The last record of each key that is not of an aborted or open transaction; without tombstones."""
    aborted = [transaction for segment in log.segments for transaction in segment.aborted]
    out: dict[bytes, Record] = {}
    for header, data in log.batches():
        is_aborted = any(
            one.producer_id == header.producer_id
            and one.first_offset <= header.base_offset <= one.last_offset
            for one in aborted
        )
        if (
            header.is_control
            or header.base_offset >= log.stable_offset
            or (is_aborted and header.is_transactional)
        ):
            continue
        for record in batches.records(data, header):
            if record.key is not None:
                out[record.key] = record
    return {key: record for key, record in out.items() if record.value is not None}


def is_last(log: Log, header: BatchHeader) -> bool:
    """Whether it is the last batch of its producer."""
    known = log.last.get(header.producer_id)
    return known is not None and header.last_offset == known.last_data_offset


def promises(log: Log, map_bytes: int) -> None:
    seen, before = read_committed(log), {header.base_offset: data for header, data in log.batches()}
    records = {record.offset: record for record in log.records()}
    task = log.task(map_bytes=map_bytes)
    last = {
        header.producer_id: header.last_sequence
        for header, _ in log.batches()
        if header.producer_id in log.last
        and header.last_offset == log.last[header.producer_id].last_data_offset
    }
    stats = log.clean_task(task)
    assert read_committed(log) == seen
    assert task.first_dirty_offset <= stats.end_offset <= task.first_uncleanable_offset
    offsets = [header.base_offset for header, _ in log.batches()]
    assert offsets == sorted(set(offsets))
    assert set(offsets) <= set(before)
    for record in log.records():
        assert record == records[record.offset]
    for header, data in log.batches():
        if header.base_offset >= task.first_uncleanable_offset:
            assert data == before[header.base_offset]
        if is_last(log, header):
            assert header.last_sequence == last.pop(header.producer_id)
    assert not last, "what is known of a producer's sequence was lost"


@settings(max_examples=depth.examples(120), deadline=None)
@given(st.lists(STEP, max_size=30))
def test_the_last_value_of_each_key_is_unchanged(steps: list[object]) -> None:
    log = play(steps)
    if log.segments[-1].data:
        log.roll()
    promises(log, 1 << 20)


@settings(max_examples=depth.examples(60), deadline=None)
@given(st.lists(STEP, max_size=30))
def test_cleaned_often_enough_nothing_changes_any_more(steps: list[object]) -> None:
    """At one time: markers and tombstones get their horizon in two cleanings; then it is the same again."""
    log = play(steps)
    if log.segments[-1].data:
        log.roll()
    for _ in range(3):
        log.clean(first_dirty_offset=0)
    lines = log.batch_lines()
    log.clean(first_dirty_offset=0)
    assert log.batch_lines() == lines


@settings(max_examples=depth.examples(60), deadline=None)
@given(st.lists(STEP, max_size=25), st.sampled_from([70, 200, 1000]))
def test_the_size_of_a_piece_changes_nothing(steps: list[object], piece: int) -> None:
    lines = play(steps).batch_lines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "CHUNK_BYTES", piece)
        assert play(steps).batch_lines() == lines


def test_a_producer_without_batches_is_no_obstacle() -> None:
    log = three_segments()
    log.clean(last_records={9: LastProducerRecord(None, 3), 10: LastProducerRecord(10_000, 0)})
    assert len({record.key for record in log.records()}) == len(log.records())
