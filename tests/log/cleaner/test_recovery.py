"""What a start finds of a cleaning that was interrupted, ours or Kafka's, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.log.cleaner.logs import (
    CONFIG,
    NOW,
    PLACE,
    T0,
    bases,
    content,
    draft,
    faults,
    filled,
    keeping,
    opened,
    put,
    run,
    task_for,
)

from konvene.log.cleaner import segment_swap
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP
from konvene.log.config import LogConfig
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import DamagedLog
from konvene.log.opening import LogCheckpoints, open_log


def renamed(disk, old, new, only=None):
    """All files whose names end in `old` end in `new` now, as a test of Kafka's would do it."""
    for name in disk.listdir(PLACE):
        if name.endswith(old) and (only is None or only(name)):
            disk.rename(f"{PLACE}/{name}", f"{PLACE}/{name.removesuffix(old)}{new}")


def kafkas(keep_last=True):
    """A log of ten segments and the new one for nine of them, all still there; what either way holds."""
    disk = MemoryDisk()
    directory, log = filled(disk, records=60, keys=60)
    old = content(log)
    finished = bases(log)[:-1]
    kept = [(h, bytes(v)) for h, v in log.batches_from() if h.base_offset < log.active_segment.base_offset]
    kept = [pair for pair in kept if pair[0].base_offset % 2 == 0 or (pair == kept[-1] and keep_last)]
    if not keep_last:
        kept = [pair for pair in kept if pair[0].base_offset < finished[-2]]
    draft(disk, PLACE, 0, kept)
    new = [(h.base_offset, data) for h, data in kept] + [
        p for p in old if p[0] >= log.active_segment.base_offset
    ]
    directory.checkpoint()
    return disk.copy(), old, new, finished


def test_drafts_alone_go():
    """1: the new segment was being written. All that was there is there."""
    disk, old, _, _ = kafkas()
    assert content(opened(disk)[1]) == old
    assert not [name for name in disk.listdir(PLACE) if name.endswith(CLEANED)]


def test_drafts_of_which_some_are_ready_go():
    """2: the `.log` is `.swap`, its index is not yet: goes back."""
    disk, old, _, _ = kafkas()
    renamed(disk, CLEANED, SWAP, lambda name: ".log" in name)
    assert content(opened(disk)[1]) == old
    assert faults(disk) == []


def test_a_segment_that_is_ready_takes_its_place():
    """3: all is `.swap`, the old segments are all there: goes on."""
    disk, _, new, finished = kafkas()
    renamed(disk, CLEANED, SWAP)
    log = opened(disk)[1]
    assert content(log) == new
    assert bases(log)[1] > finished[-1]
    assert faults(disk) == []


def test_a_complete_cleaned_segment_replaces_removed_sources():
    """4: the old segments are `.deleted`."""
    disk, _, new, finished = kafkas()
    renamed(disk, CLEANED, SWAP)
    removed = tuple(f"{base:020d}" for base in finished)
    renamed(
        disk, "", DELETED, lambda name: name.startswith(removed) and not name.endswith((SWAP, ".snapshot"))
    )
    assert content(opened(disk)[1]) == new
    assert not [name for name in disk.listdir(PLACE) if name.endswith((DELETED, SWAP))]
    assert faults(disk) == []


@pytest.mark.parametrize("left", [1, 2])
def test_a_segment_of_which_some_files_have_their_names_gets_the_others(left):
    """5: the last files are still `.swap`, and nothing else is."""
    disk, _, new, finished = kafkas()
    renamed(disk, CLEANED, SWAP)
    removed = tuple(f"{base:020d}" for base in finished)
    renamed(
        disk, "", DELETED, lambda name: name.startswith(removed) and not name.endswith((SWAP, ".snapshot"))
    )
    swaps = [name for name in disk.listdir(PLACE) if name.endswith(SWAP)]
    in_order = sorted(swaps, key=lambda name: [".log", ".index", ".timeindex"].index(name[20:-5]))
    for name in in_order[:-left]:
        disk.rename(f"{PLACE}/{name}", f"{PLACE}/{name.removesuffix(SWAP)}")
    log = opened(disk)[1]
    assert content(log) == new
    assert all(log.read(offset, 1) == data for offset, data in new)
    assert not [name for name in disk.listdir(PLACE) if name.endswith(SWAP)]
    assert faults(disk) == []


def test_kafka_leaves_a_source_that_its_new_segment_does_not_reach():
    """What Kafka's start does where nothing was kept of the last source, and ours to Kafka's files."""
    disk, old, _, finished = kafkas(keep_last=False)
    renamed(disk, CLEANED, SWAP)
    held = [offset for offset, _ in content(opened(disk)[1])]
    even = [offset for offset in range(finished[-2]) if offset % 2 == 0]
    assert held == even + [offset for offset, _ in old if offset >= finished[-2]]


def test_of_our_own_no_source_stays():
    """If the last sources retain no record, `prepare_swap` marks the sources to delete, as Kafka expects."""
    for missing in (1, 2, 3):
        disk = MemoryDisk()
        directory, log = filled(disk, records=60, keys=60)
        finished = bases(log)[:-1]
        keep = keeping(
            lambda header, _, stop=finished[-missing]: header.base_offset < stop, [tuple(finished)]
        )
        task = task_for(directory, log)
        segment_swap.begin_cleaning(directory, T0, task)
        group = next(keep(disk, task))
        segment_swap.prepare_swap(disk, PLACE, group)
        assert disk.size(f"{PLACE}/{finished[-1]:020d}.log{SWAP}") == 0
        found = opened(disk.crash())[1]
        assert bases(found) == [0, log.active_segment.base_offset]
        segment_swap.swap_segments(log, group)
        assert content(found) == content(log)
        assert not [name for name in disk.listdir(PLACE) if name.endswith(SWAP)]


def splits():
    """A segment that Kafka split in three, as files that are all there beside the one that was split."""
    disk = MemoryDisk()
    directory, log = filled(disk, records=12, keys=12, config=LogConfig(index_interval_bytes=1))
    log.roll(NOW)
    put(log, b"k", b"active")
    log.sync()
    directory.checkpoint()
    held = [(h, bytes(v)) for h, v in log.batches_from()]
    for first, stop in ((0, 4), (4, 9), (9, 12)):
        draft(disk, PLACE, first, [pair for pair in held if first <= pair[0].base_offset < stop])
    return disk.copy(), [(header.base_offset, data) for header, data in held]


@pytest.mark.parametrize(
    "state", ["has_unfinished_files", "one ready", "all ready", "old gone", "one in place"]
)
def test_a_split_of_kafkas_is_undone_or_completed(state):
    """A segment that was split into three is one or three again; nothing of it is lost or there twice."""
    disk, held = splits()
    if state == "one ready":
        renamed(disk, CLEANED, SWAP, lambda name: name.startswith(f"{9:020d}"))
    if state in ("all ready", "old gone", "one in place"):
        renamed(disk, CLEANED, SWAP)
    if state in ("old gone", "one in place"):
        renamed(disk, "", DELETED, lambda name: name.startswith("0" * 20) and not name.endswith(SWAP))
    if state == "one in place":
        renamed(disk, SWAP, "", lambda name: name.startswith("0" * 20))
    log = opened(disk, LogConfig())[1]
    assert content(log) == held
    assert bases(log) == ([0, 12] if state in ("has_unfinished_files", "one ready") else [0, 4, 9, 12])
    assert faults(disk) == []


def gaps(disk, recovery_point=0, cleaned_to=0, config=CONFIG):
    """The log of a folder in which some segment ends before the next one begins, opened after a crash."""
    log, _ = open_log(
        disk.copy(),
        PLACE,
        config,
        clean=False,
        now_ms=NOW,
        checkpoints=LogCheckpoints(recovery_point=recovery_point, cleaned_to=cleaned_to),
    )
    return [offset for offset, _ in content(log)]


def test_a_gap_after_the_recovery_point_is_accepted_if_a_cleaning_left_it():
    """Kafka replaces segments before it writes down how far the log is durable: that is no damaged log.

    One that shows no other sign of a cleaning is still refused, and so is a log that is never cleaned."""
    disk = MemoryDisk()
    directory, log = filled(disk)
    second = bases(log)[1]
    run(directory, keeping(lambda header, _data: header.base_offset == 0, [(0,)]))
    held = [0, *range(second, 30)]
    assert gaps(disk, recovery_point=second) == held
    assert gaps(disk, cleaned_to=second) == held
    with pytest.raises(DamagedLog):
        gaps(disk)

    disk = MemoryDisk()
    directory, log = filled(disk)
    run(directory, keeping(lambda header, _data: header.base_offset == 1, [(0,)]))
    assert gaps(disk) == [1, *range(second, 30)]
    with pytest.raises(DamagedLog):
        gaps(disk, config=replace(CONFIG, cleanup_policy=frozenset({"delete"})))
