"""Output of the tools for logs that are being cleaned, were cleaned, or have an interrupted cleaning."""

from __future__ import annotations

import pytest
from tests.log.cleaner.logs import (
    PLACE,
    T0,
    bases,
    content,
    draft,
    keeping,
    last_of_each_key,
    opened,
    put,
    run,
    task_for,
)

from konvene.log.cleaner import segment_swap
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP
from konvene.log.disk.memory import MemoryDisk
from konvene.log.inspect.dump import Batch, find, walk
from konvene.log.inspect.repair import durable_offsets, plan, repair
from konvene.log.inspect.verify import verify


def filled(records=30):
    disk = MemoryDisk()
    directory, log = opened(disk)
    for at in range(records):
        put(log, b"once" if at == 6 else b"k%d" % (at % 5), b"value %03d" % at)
    log.sync()
    return disk, directory, log


def half_done(disk, directory, log):
    """A cleaning that has come to `prepare_swap`; what the log holds when it is done."""
    segment_swap.begin_cleaning(directory, T0, task_for(directory, log))
    clean = keeping(last_of_each_key(log), [tuple(bases(log)[:-1])])
    group = next(clean(disk, log.cleaning))
    segment_swap.prepare_swap(disk, PLACE, group)
    whole = opened(disk.copy())[1]
    return content(whole)


def notes(disk):
    found = verify(disk, find(disk, PLACE)[0], durable=durable_offsets(disk, PLACE).get("t-0"))
    return found.is_sound, sorted({f.message.partition(":")[0] for f in found.findings if not f.is_damage})


def test_a_log_that_was_cleaned_is_sound():
    """Check that the only notes are about missing offsets."""
    disk, directory, log = filled()
    run(directory, keeping(last_of_each_key(log), [(0, *bases(log)[1:3]), tuple(bases(log)[3:-1])]))
    sound, notes_found = notes(disk)
    assert sound
    assert all(note.startswith("nothing between offset") or note == "missing" for note in notes_found)


def test_leftovers_of_a_cleaning_are_reported():
    """Each kind of file, and what a broker does with it."""
    disk, directory, log = filled()
    half_done(disk, directory, log)
    assert notes(disk)[0]
    assert "from a compaction that is about to take effect" in notes(disk)[1]
    draft(disk, PLACE, 0, [])
    assert "from a compaction that runs, or was interrupted" in notes(disk)[1]
    disk.rename(f"{PLACE}/{0:020d}.log", f"{PLACE}/{0:020d}.log.1{DELETED}")
    assert "deleted or compacted away" in notes(disk)[1]


def test_a_new_segment_that_is_not_whole_is_damage():
    """Such a cleaning cannot be completed: it is reported before a broker refuses the log."""
    disk, directory, log = filled()
    half_done(disk, directory, log)
    path = f"{PLACE}/{0:020d}.log{SWAP}"
    disk.open(path).truncate(disk.size(path) - 1)
    found = verify(disk, find(disk, PLACE)[0])
    assert [(each.kind, each.path) for each in found.findings if each.is_damage] == [("damage", path)]


@pytest.mark.parametrize("suffix", [CLEANED, SWAP, DELETED, f".3{DELETED}"])
def test_a_file_of_a_cleaning_can_be_looked_into(suffix):
    """By its own name, as any segment."""
    disk, _, log = filled()
    path = f"{PLACE}/{0:020d}.log"
    disk.rename(path, path + suffix)
    folder = find(disk, path + suffix)[0]
    assert folder.logs == (f"{0:020d}.log{suffix}",)
    file = disk.open(path + suffix)
    seen = [part for part in walk(file, file.size(), 0) if isinstance(part, Batch)]
    assert len(seen) == log.segments[1].base_offset


def planned(disk):
    return plan(disk, find(disk, PLACE)[0], durable_offsets(disk, PLACE).get("t-0"))


def test_a_gap_that_a_cleaning_left_is_nothing_to_repair():
    """Before the recovery point, before the end of the last cleaning, or where the segment shows others."""
    disk, directory, log = filled()
    run(directory, keeping(lambda header, _: header.base_offset == 0, [(0,)]))
    directory.checkpoint()
    assert not planned(disk).is_needed
    disk.remove("/d/recovery-point-offset-checkpoint")
    folder = find(disk, PLACE)[0]
    assert not plan(disk, folder, 0).is_needed
    disk.remove("/d/cleaner-offset-checkpoint")
    assert plan(disk, folder, 0).is_needed
    assert plan(disk, folder, 0).end_offset == 1
    again = filled()[0]
    directory, log = opened(again.copy())
    run(directory, keeping(lambda header, _: header.base_offset == 1, [(0,)]))
    assert not plan(directory.disk, find(directory.disk, PLACE)[0], 0).is_needed
    assert log.end_offset == 30


def test_a_repair_finishes_a_cleaning_first():
    """Else the next start would, and bring back what was cut; what is kept stays kept."""
    disk, directory, log = filled()
    clean = half_done(disk, directory, log)
    second = f"{PLACE}/{bases(log)[1]:020d}.log"
    torn = disk.copy()
    active = f"{PLACE}/{bases(log)[-1]:020d}.log"
    data = bytearray(torn.read(active))
    data[-1] ^= 1
    torn.open(active).truncate(0)
    torn.open(active).append(bytes(data))
    torn.rename(second, second + ".lost")
    cut = planned(torn)
    assert cut.is_needed
    repair(torn, cut)
    assert not [name for name in torn.listdir(PLACE) if name.endswith((CLEANED, SWAP))]
    assert content(opened(torn)[1]) == clean[:-1]
    assert clean[0][0] == 6
