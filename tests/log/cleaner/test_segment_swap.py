"""A cleaned segment takes the place of others: at once for who asks, without harm to who reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.log.cleaner.logs import (
    CONFIG,
    IDENTITY,
    NOW,
    PLACE,
    T0,
    bases,
    content,
    faults,
    filled,
    keeping,
    last_of_each_key,
    last_values,
    opened,
    put,
    run,
    task_for,
)

from konvene.log.cleaner import segment_swap
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP
from konvene.log.directory import RECOVERY_POINTS, LogDirectory
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import LogDeleted, OffsetOutOfRange


def all_in_one(log):
    """One group of all finished segments."""
    return keeping(last_of_each_key(log), [tuple(bases(log)[:-1])])


def test_the_new_segment_is_read_from_the_moment_it_is_in_place():
    """Batches, offsets, indexes and sizes are those of the new segment, and the end of the log stays."""
    directory, log = filled(MemoryDisk())
    before, end, count = last_values(log), log.end_offset, len(log.segments)
    run(directory, all_in_one(log))
    assert bases(log) == [0, log.active_segment.base_offset]
    assert count > 5
    assert last_values(log) == before
    assert log.end_offset == end
    assert log.segments[0].next_offset == log.active_segment.base_offset
    assert log.size == sum(len(data) for _, data in content(log))
    for offset, data in content(log):
        assert log.read(offset, 1) == data
    assert faults(directory.disk) == []
    assert directory.cleaned_to(T0) == log.active_segment.base_offset


def test_a_read_in_a_gap_gives_what_follows_it():
    """Offsets that were cleaned away are no error: the next batch is given, of the next segment at need."""
    directory, log = filled(MemoryDisk())
    run(directory, keeping(lambda header, _data: header.base_offset == 1, [tuple(bases(log)[:-1])]))
    active = log.active_segment.base_offset
    assert [offset for offset, _ in content(log)] == [1, *range(active, 30)]
    for offset in range(2, active):
        assert log.read(offset, 1) == log.read(active, 1)
    assert log.read(0, 1) == log.read(1, 1)
    assert log.read(5, 100, upto=active) == b""
    assert [header.base_offset for header, _ in log.batches_from(5)] == list(range(active, 30))


def test_a_log_that_is_cleaned_to_nothing_keeps_its_start_and_its_end():
    """An empty segment stands where everything went."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    active = log.active_segment.base_offset
    run(directory, keeping(lambda _header, _data: False, [tuple(bases(log)[:-1])]))
    assert (log.start_offset, bases(log), log.segments[0].size) == (0, [0, active], 0)
    assert log.read(0, 1) == log.read(active, 1)
    again = opened(disk.copy())[1]
    assert (again.start_offset, again.end_offset, bases(again)) == (0, 30, [0, active])
    assert content(again) == content(log)


def test_files_that_were_replaced_go_after_their_time():
    """They are there for `file.delete.delay.ms`, counted from the first look, under Kafka's name."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    clean = all_in_one(log)
    for group in clean(disk, task):
        old = segment_swap.swap_durably(log, group)
        assert len(old) == len(task.sources)
    doomed = {name for name in disk.listdir(PLACE) if name.endswith(DELETED)}
    assert {name[:20] for name in doomed} == {f"{source.base_offset:020d}" for source in task.sources}
    assert segment_swap.remove_deleted(log, NOW) == 0
    assert segment_swap.remove_deleted(log, NOW + CONFIG.file_delete_delay_ms - 1) == 0
    assert doomed <= set(disk.listdir(PLACE))
    assert segment_swap.remove_deleted(log, NOW + CONFIG.file_delete_delay_ms) == len(old)
    assert not [name for name in disk.listdir(PLACE) if name.endswith((DELETED, SWAP, CLEANED))]


def test_who_reads_a_segment_that_is_replaced_reads_on():
    """A reader that has begun sees the rest of its segment, then the new ones: each once, in order."""
    directory, log = filled(MemoryDisk())
    whole = content(log)
    for stop in range(1, 20):
        directory, log = filled(MemoryDisk())
        reader = log.batches_from()
        seen = [next(reader)[0].base_offset for _ in range(stop)]
        run(directory, all_in_one(log))
        seen += [header.base_offset for header, _ in reader]
        assert seen[:stop] == [offset for offset, _ in whole[:stop]]
        assert all(one < other for one, other in pairwise(seen))
        assert {offset for offset, _ in content(log) if offset >= seen[stop - 1]} <= set(seen)


def test_a_reader_of_a_deleted_file_continues_in_the_new_one(tmp_path):
    """With few descriptors and after the deletion delay the reader continues at its offset."""
    disk = RealDisk(max_open=1)
    directory = LogDirectory.open(disk, str(tmp_path), IDENTITY)
    log = directory.create([T0], replace(CONFIG, segment_bytes=2_200_000), NOW)[0]
    for at in range(9):
        put(log, b"k%d" % (at % 2), bytes(700_000))
    log.sync()
    reader = log.batches_from()
    seen = [next(reader)[0].base_offset]
    run(directory, keeping(lambda header, _data: header.base_offset in (2, 4), [tuple(bases(log)[:-1])]))
    assert log.segments[-1].file.pread(1, 0)  # This takes the one descriptor.
    seen += [header.base_offset for header, _ in reader]
    assert seen == [0, 2, 4, 6, 7, 8]
    directory.close()


def test_two_cleanings_within_the_delay_leave_the_readers_of_both():
    """A second segment of a name is set aside under another one: no reader switches files by accident."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    first = content(log)
    early = log.segments[0]
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    for group in all_in_one(log)(disk, task):
        segment_swap.swap_durably(log, group)
    segment_swap.finish_cleaning(log)
    later = log.segments[0]
    second = content(log)
    put(log, b"k1", b"once more")
    log.roll(NOW)
    log.sync()
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    for group in keeping(lambda header, _data: header.base_offset > 20, [tuple(bases(log)[:-1])])(disk, task):
        segment_swap.swap_durably(log, group)
    segment_swap.finish_cleaning(log)
    for segment, whole in ((early, first), (later, second)):
        found = [(header.base_offset, bytes(view)) for header, view in segment.scan(0)]
        assert found == [pair for pair in whole if pair[0] < segment.next_offset]
        assert disk.exists(segment.path)
        segment._offsets = segment._times = None
        assert segment.load_indexes()
    directory.close()
    assert not [name for name in disk.listdir(PLACE) if name.endswith(DELETED)]


def test_records_appended_while_it_is_put_in_place_stay():
    """What was written between the choice and the exchange, also into new segments, is not touched."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    clean = all_in_one(log)(disk, task)
    segment_swap.begin_cleaning(directory, T0, task)
    for at in range(30, 60):
        put(log, b"late %d" % at, b"value")
    later = [pair for pair in content(log) if pair[0] >= task.first_uncleanable_offset]
    for group in clean:
        segment_swap.swap_durably(log, group)
    assert [pair for pair in content(log) if pair[0] >= task.first_uncleanable_offset] == later
    log.sync()
    assert content(opened(disk.crash())[1]) == content(log)


def test_a_reader_ends_where_the_log_was_cut_meanwhile():
    """What it was to read up to is not there any more: it ends, and does not look for it for ever."""
    directory, log = filled(MemoryDisk())
    reader = log.batches_from()
    seen = [next(reader)[0].base_offset for _ in range(3)]
    directory.truncate(T0, 8)
    seen += [header.base_offset for header, _ in reader]
    assert seen == list(range(8))


def test_indexes_that_were_in_use_are_there_again():
    """Who settles reads them, so that the next reader does not have to; unused ones stay on the disk."""
    for used in (True, False):
        directory, log = opened(filled(MemoryDisk())[0].disk.copy())
        for segment in log.segments[:-1]:
            segment._offsets = segment._times = None
        clean = keeping(lambda header, _data: header.base_offset % 2 == 0, [tuple(bases(log)[:-1])])
        task = task_for(directory, log)
        assert not log.segments[0].has_read_indexes
        if used:
            log.read(0, 1)
        segment_swap.begin_cleaning(directory, T0, task)
        for group in clean(directory.disk, task):
            segment_swap.swap_durably(log, group)
        assert log.segments[0].has_read_indexes is used
        assert log.read(0, 1)


def test_a_log_that_was_cut_meanwhile_is_not_what_was_cleaned():
    """A cleaning whose log has been cut is discarded, also where such a segment has been written again."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    group = next(all_in_one(log)(disk, task))
    segment_swap.prepare_swap(disk, PLACE, group)
    directory.truncate(T0, 5)
    assert log.cleaning is None
    for at in range(5, 30):
        put(log, b"k", b"another %d" % at)
    log.sync()
    held = content(log)
    assert segment_swap.swap_segments(log, group) == []
    assert content(log) == held
    assert not [name for name in disk.listdir(PLACE) if name.endswith((CLEANED, SWAP, DELETED))]
    assert content(opened(disk.crash())[1]) == held


def test_a_cut_in_a_gap_ends_where_the_last_record_ends():
    """The log ends where an opening finds its end, and the recovery point is not behind it."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    run(directory, keeping(lambda header, _data: header.base_offset in (3, 9), [tuple(bases(log)[:-1])]))
    directory.truncate(T0, 7)
    assert (log.end_offset, [offset for offset, _ in content(log)]) == (4, [3])
    assert directory.cleaned_to(T0) == 4
    assert opened(disk.copy())[1].end_offset == 4
    assert opened(disk.crash())[1].end_offset == 4
    assert put(log, b"k", b"next") == 4


def test_a_partition_that_was_deleted_meanwhile_is_left_alone():
    """The swap does not happen, and other partitions are not affected."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    group = next(all_in_one(log)(disk, task))
    directory.delete(T0, "abc")
    with pytest.raises(LogDeleted):
        segment_swap.swap_segments(log, group)
    with pytest.raises(LogDeleted):
        segment_swap.swap_durably(log, group)
    segment_swap.abort_cleaning(log)
    assert directory.health.failure is None
    assert directory.cleaned_to(T0) is None
    assert not disk.exists(PLACE)


def test_retention_waits_for_the_cleaning():
    """Segments before the log's start stay while the log is cleaned, and go afterwards."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    log.delete_records_before(20)
    assert log.retain(NOW) == []
    for group in keeping(last_of_each_key(log), [(0, *bases(log)[1:2]), tuple(bases(log)[2:-1])])(disk, task):
        segment_swap.swap_durably(log, group)
    segment_swap.finish_cleaning(log)
    deleted = log.retain(NOW)
    assert deleted
    assert log.start_offset == 20
    with pytest.raises(OffsetOutOfRange):
        log.read(19, 1)


def test_retention_by_time_passes_an_empty_segment():
    """A segment without records is as old as its file, and does not block retention."""
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    disk = MemoryDisk()
    disk.now_ms = NOW
    directory, log = filled(disk, config=config)
    finished = bases(log)[:-1]
    run(
        directory,
        keeping(lambda header, _data: header.base_offset >= finished[2], [(0,), tuple(finished[1:])]),
    )
    assert log.segments[0].size == 0
    assert log.retain(NOW + 1000) == []
    assert log.retain(NOW + 1001)[0] == 0


def test_a_cleaning_begins_once():
    """There is one cleaning of a log at a time, and its leftovers go before the next one."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    with pytest.raises(ValueError, match="already"):
        segment_swap.begin_cleaning(directory, T0, task)
    group = next(all_in_one(log)(disk, task))
    segment_swap.prepare_swap(disk, PLACE, group)
    segment_swap.finish_cleaning(log)
    held = content(log)
    segment_swap.begin_cleaning(directory, T0, task)
    assert not [name for name in disk.listdir(PLACE) if name.endswith((CLEANED, SWAP))]
    assert content(opened(disk.crash(lambda count: count - 1))[1]) == held


def test_the_recovery_point_is_behind_all_that_is_cleaned():
    """It is on the disk before anything is replaced; a gap behind it would look like a lost file."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    assert not disk.exists(f"/d/{RECOVERY_POINTS}")
    segment_swap.begin_cleaning(directory, T0, task_for(directory, log))
    assert f"t 0 {log.synced_offset}" in disk.crash().read(f"/d/{RECOVERY_POINTS}").decode()


@pytest.mark.parametrize("ended", [False, True])
def test_a_clean_close_leaves_nothing_of_a_cleaning(ended):
    """Replaced and incomplete files are removed at the next start; the log is unchanged.

    Also if a cleaning left files behind that a start from the summary would not notice."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    groups = keeping(last_of_each_key(log), [tuple(bases(log)[:2]), tuple(bases(log)[2:-1])])(disk, task)
    segment_swap.swap_durably(log, next(groups))
    segment_swap.prepare_swap(disk, PLACE, next(groups))
    held = content(log)
    if ended:
        segment_swap.finish_cleaning(log)
    directory.close()
    assert not [name for name in disk.listdir(PLACE) if name.endswith((CLEANED, SWAP, DELETED))]
    directory, log = opened(disk.crash())
    assert directory.clean
    assert content(log) == held
