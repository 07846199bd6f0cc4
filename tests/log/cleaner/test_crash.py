"""Crashes during a cleaning: each group of segments is either completely old or completely new.

Each file operation is once the last one before a crash: of the process (all writes survive), or of the
machine (all unsynced data is lost, or part of it). The log opened afterwards must be one of those before and
after each swap, with the same offsets, epochs, producers and aborted transactions, and not older than what
`prepare_swap` has committed to. Then the opening itself is interrupted at each operation. And each operation
fails once with an error: the log continues, or goes offline.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from tests.log.cleaner.logs import (
    CONFIG,
    NOW,
    PLACE,
    T0,
    Batches,
    Cleaning,
    Keep,
    bases,
    content,
    faults,
    keeping,
    last_values,
    opened,
    put,
    task_for,
)

from konvene.codec import batches as rb
from konvene.log.cleaner import segment_swap
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP, CleanedSegment
from konvene.log.directory import LogDirectory
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import LogOffline
from konvene.log.opening import open_log
from konvene.log.partition import PartitionLog


class Held(NamedTuple):
    """Return the visible state of a log."""

    batches: Batches
    start: int
    end: int
    epochs: list[tuple[int, int]]
    producers: bytes
    aborted: list[tuple[int, ...]]

    @classmethod
    def of(cls, log: PartitionLog) -> Held:
        return cls(
            content(log), log.start_offset, log.end_offset, list(log.epochs.starts), log.producers.snapshot(),
            [tuple(transaction) for transaction in log.aborted],
        )  # fmt: skip


class Case(NamedTuple):
    """A disk with a log to be cleaned, and how."""

    disk: MemoryDisk
    clean: Cleaning


# logs to be cleaned -------------------------------------------------------------------------------


def write_transaction(
    log: PartitionLog, producer_id: int, sequence: int, keys: list[bytes], *, commit: bool
) -> None:
    data = rb.build_simple(
        [(key, b"in a transaction") for key in keys], NOW, producer_id=producer_id, producer_epoch=0,
        base_sequence=sequence, transactional=True,
    )  # fmt: skip
    log.append_as_leader(data, log.epochs.latest, NOW)
    log.append_marker(
        commit, log.epochs.latest, NOW, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
    )


def written(records: int = 40) -> MemoryDisk:
    """Few keys, often written, by producers too, in transactions of both ends, under three leaders."""
    disk = MemoryDisk()
    directory, log = opened(disk)
    sequence = 0
    for at in range(records):
        put(log, b"k%d" % (at % 5), b"value %03d" % at, epoch=at * 3 // records)
        if at % 7 == 3:
            write_transaction(log, 7, sequence, [b"k1", b"t%d" % at], commit=at % 2 == 0)
            sequence += 2
        if at % 11 == 5:
            data = rb.build_simple(
                [(b"k2", b"idempotent")], NOW, producer_id=8, producer_epoch=0, base_sequence=at // 11
            )
            log.append_as_leader(data, log.epochs.latest, NOW)
    log.sync()
    directory.checkpoint()
    return disk.crash()


def last_or_produced(log: PartitionLog) -> Keep:
    """Keeps what is last of its key, and all that a producer wrote."""
    kept = {offset for offset, _ in last_values(log).values()}
    return lambda header, _: header.producer_id >= 0 or header.base_offset in kept


def grouped(records: int = 40) -> Case:
    """Several groups of two and three segments."""
    disk = written(records)
    log = opened(disk.copy())[1]
    finished = bases(log)[:-1]
    parts = [tuple(finished[:2]), tuple(finished[2:5]), tuple(finished[5:])]
    return Case(disk, keeping(last_or_produced(log), [part for part in parts if part]))


def with_nothing_of_the_last(records: int = 40) -> Case:
    """One group, of which the last segments have nothing that stays."""
    disk = written(records)
    finished = bases(opened(disk.copy())[1])[:-1]
    return Case(disk, keeping(lambda header, _: 2 < header.base_offset < finished[2], [tuple(finished)]))


def with_nothing_at_all(records: int = 40) -> Case:
    """Two groups, of which nothing stays, the first of one segment."""
    disk = written(records)
    finished = bases(opened(disk.copy())[1])[:-1]
    return Case(disk, keeping(lambda _header, _: False, [tuple(finished[:1]), tuple(finished[1:])]))


def by_the_cleaner(records: int = 40) -> Case:
    """What the cleaner itself does with such a log: a segment for almost each."""
    return Case(written(max(18, records // 2)), clean)


CASES = {
    "grouped": grouped, "nothing of the last": with_nothing_of_the_last, "nothing": with_nothing_at_all,
    "the cleaner": by_the_cleaner,
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


# cleaning -----------------------------------------------------------------------------------------


class Run:
    """One cleaning, and what was held at each of its stages."""

    def __init__(self, disk: MemoryDisk, clean: Cleaning, directory: LogDirectory | None = None) -> None:
        self.disk = disk
        self.directory = directory or opened(disk)[0]
        self.log = self.directory.logs[T0]
        self._clean = clean
        self.stages = [Held.of(self.log)]
        #: How many exchanges a start has to go on with.
        self.promised = 0

    def clean(self) -> None:
        """As a broker does it. Raises `LogOffline`, and OSError where the cleaning was given up."""
        directory, log = self.directory, self.log
        task = task_for(directory, log)
        segment_swap.begin_cleaning(directory, T0, task)
        try:
            steps = self._clean(self.disk, task)
            for result in steps:
                if isinstance(result, CleanedSegment):
                    self._exchange(result)
        except OSError:
            segment_swap.abort_cleaning(log)
            raise
        segment_swap.finish_cleaning(log)
        directory.set_cleaned_offset(T0, task.first_uncleanable_offset)
        segment_swap.remove_deleted(log, NOW)
        segment_swap.remove_deleted(log, NOW + CONFIG.file_delete_delay_ms)

    def _exchange(self, group: CleanedSegment) -> None:
        log = self.log
        try:
            segment_swap.prepare_swap(self.disk, PLACE, group)
        except OSError as error:
            log.health.fail("cannot rename", error)
        self.promised += 1
        assert segment_swap.swap_segments(log, group)
        self.stages.append(Held.of(log))
        segment_swap.sync_swap(log)


def whole_run(case: Case) -> tuple[list[Held], int, int]:
    """What there is at each stage, and the first and last operation of the cleaning."""
    run = Run(case.disk.copy(), case.clean)
    first = run.disk.calls
    run.clean()
    return run.stages, first + 1, run.disk.calls


def check(disk: MemoryDisk, stages: list[Held], promised: int) -> int:
    """Open what is found: which stage it is. Not before what was promised, and whole."""
    log = opened(disk)[1]
    held = Held.of(log)
    assert held in stages[promised:]
    assert not [name for name in disk.listdir(PLACE) if name.endswith((CLEANED, SWAP, DELETED))]
    assert faults(disk) == []
    for offset, data in held.batches:
        assert log.read(offset, 1) == data
    return stages.index(held)


Files = tuple[tuple[str, bytes], ...]


def files(disk: MemoryDisk) -> Files:
    return tuple(
        (name, bytes(inode.data)) for name, inode in sorted(disk._names.items()) if inode is not None
    )


# what there is after the end of the power, or of the process --------------------------------------


def lucky(seed: int) -> Callable[[int], int]:
    chance = random.Random(seed)
    return lambda count: chance.randrange(count)


ENDS: dict[str, Callable[[MemoryDisk, int], MemoryDisk]] = {
    "killed": lambda disk, _at: disk.copy(),
    "nothing unsynced": lambda disk, _at: disk.crash(),
    "some unsynced": lambda disk, at: disk.crash(lucky(at)),
    "other unsynced": lambda disk, at: disk.crash(lucky(at + 10_000)),
    "names only": lambda disk, _at: disk.crash(lambda count: count - 1),
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@cache
def interrupted(make: Callable[..., Case], records: int = 40) -> list[tuple[MemoryDisk, int, int]]:
    """The disk after a cleaning that was cut off at each of its operations, the operation, and how much had
    been promised by then."""
    case, found = make(records), []
    _, first, last = whole_run(case)
    for at in range(first, last + 1):
        run = Run(case.disk.copy(), case.clean)
        run.disk.cut_power_at = at
        with pytest.raises(PowerCut):
            run.clean()
        run.disk.cut_power_at = None
        found.append((run.disk, at, run.promised))
    return found


@every_end
@every_case
def test_after_an_end_at_any_operation_all_is_old_or_all_is_new(case, end):
    """One of the stages is there, none is mixed, all of them come, and what was promised is kept. The same
    files are opened once."""
    stages = whole_run(case())[0]
    known: dict[Files, int] = {}
    seen = []
    for cut, at, promised in interrupted(case):
        disk = end(cut, at)
        found = files(disk)
        if found not in known:
            known[found] = check(disk, stages, promised)
        assert known[found] >= promised
        seen.append(known[found])
    assert {0, len(stages) - 1} <= set(seen)
    assert seen == sorted(seen)


@every_case
def test_an_opening_that_is_interrupted_as_well_is_done_again(case):
    """At each operation of the opening that follows, again killed or without power: the same stage."""
    stages = whole_run(case(18))[0]
    known: dict[Files, int] = {}
    for disk, _, promised in interrupted(case, 18):
        found = files(disk)
        if found in known or not any(name.endswith((SWAP, DELETED, CLEANED)) for name, _ in found):
            continue
        known[found] = stage = check(disk.copy(), stages, promised)
        for at in range(1, 10_000):
            again = disk.copy()
            again.cut_power_at = at
            try:
                opened(again)
                break
            except PowerCut:
                again.cut_power_at = None
            for twice in (again.copy(), again.crash(), again.crash(lucky(at))):
                found = files(twice)
                if found not in known:
                    known[found] = check(twice, stages, promised)
                assert known[found] == stage
    assert len(known) > 50


@every_case
def test_after_an_end_the_next_cleaning_does_the_rest(case):
    """What is found can be written to and cleaned, and all that was last is still last."""
    begun: set[Files] = set()
    for cut, _, _ in interrupted(case):
        disk = cut.crash()
        if (found := files(disk)) in begun:
            continue
        begun.add(found)
        directory, log = opened(disk)
        put(log, b"k9", b"later", epoch=5)
        log.roll(NOW)
        put(log, b"k9", b"last", epoch=5)
        log.sync()
        last = last_values(log)
        Run(disk, keeping(last_or_produced(log), [tuple(bases(log)[:-1])]), directory).clean()
        assert last_values(log) == last
        assert len(log.segments) == 2
        held = Held.of(log)
        assert Held.of(opened(disk.crash())[1]) == held


def test_producers_are_read_again_from_what_a_cleaning_leaves():
    """Also without a snapshot: each producer has the same last sequence, epoch and open transaction.

    Earlier batches and ended transactions need not be restored."""
    scenario = by_the_cleaner()
    run = Run(scenario.disk.copy(), scenario.clean)
    run.clean()
    bare = run.disk.copy()
    for name in bare.listdir(PLACE):
        if name.endswith(".snapshot"):
            bare.remove(f"{PLACE}/{name}")
    log, _ = open_log(bare, PLACE, CONFIG, clean=False, now_ms=NOW)
    known, found = run.log.producers.by_id, log.producers.by_id
    assert sorted(found) == sorted(known) == [7, 8]
    for producer_id, producer in known.items():
        again = found[producer_id]
        assert again.batches[-1] == producer.batches[-1]
        assert (again.epoch, again.last_sequence) == (producer.epoch, producer.last_sequence)
        assert (again.transaction_start, again.last_timestamp) == (None, producer.last_timestamp)
    assert last_values(log) == last_values(run.log)
    data = [
        (header.producer_id, header.base_offset)
        for header, _ in log.batches_from()
        if header.record_count and not header.is_control
    ]
    for transaction in run.log.aborted:
        if any(
            producer == transaction.producer_id and transaction.first_offset <= at <= transaction.last_offset
            for producer, at in data
        ):
            assert transaction in log.aborted


# errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@every_case
def test_an_error_at_any_operation_leaves_the_log_or_takes_it_offline(case, code):
    """The log holds one of the stages and goes on; or it is offline, and a start finds a stage."""
    scenario = case()
    stages, first, last = whole_run(scenario)
    offline = goes_on = 0
    known: dict[Files, int] = {}
    for at in range(first, last + 1):
        run = Run(scenario.disk.copy(), scenario.clean)
        run.disk.fail[at] = code
        try:
            run.clean()
            continue  # The failure had no effect on the log.
        except LogOffline:
            offline += 1
            with pytest.raises(LogOffline):
                put(run.log, b"k", b"v", epoch=5)
        except OSError:
            goes_on += 1
            assert Held.of(run.log) in stages
            assert run.log.cleaning is None
            assert not [name for name in run.disk.listdir(PLACE) if name.endswith((CLEANED, SWAP))]
            put(run.log, b"k", b"v", epoch=5)
            run.log.sync()
            whole = Held.of(run.log)
            assert Held.of(opened(run.disk.crash())[1]) == whole
            assert whole.batches[:-1] == stages[run.promised].batches
            continue
        for disk in (run.disk.copy(), run.disk.crash(), run.disk.crash(lucky(at))):
            if (found := files(disk)) not in known:
                known[found] = check(disk, stages, run.promised)
            assert known[found] >= run.promised
    assert offline > 5
    assert goes_on > 5


def test_the_cleaner_checkpoint_advances_only_after_the_cleaning():
    """After an end at any operation, what counts as clean is in place."""
    stages = whole_run(grouped())[0]
    for cut, at, _ in interrupted(grouped):
        for disk in (cut.copy(), cut.crash(), cut.crash(lucky(at))):
            directory: LogDirectory = opened(disk)[0]
            if directory.cleaned_to(T0) is not None:
                assert Held.of(directory.logs[T0]) == stages[-1]
