"""After a crash: a torn tail is cut and reported, damage in the middle is refused, synced data is kept."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth

from konvene.codec import batches as rb
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import DamagedLog, LogOffline
from konvene.log.opening import LogCheckpoints, open_log
from konvene.log.partition import PartitionLog
from konvene.log.recovery import RecoveryResult

NOW = 1_760_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
PLACE = "/d/t-0"
FIRST = f"{PLACE}/00000000000000000000.log"


def reopened(disk: MemoryDisk, **checkpoints) -> tuple[PartitionLog, RecoveryResult]:
    return open_log(disk, PLACE, CONFIG, clean=False, now_ms=NOW, checkpoints=LogCheckpoints(**checkpoints))


def values(log: PartitionLog) -> list[bytes | None]:
    return [
        record.value
        for header, view in log.batches_from()
        for record in rb.records(view, header)
        if not header.is_control
    ]


def three_batches() -> tuple[MemoryDisk, list[int]]:
    """A log of one segment and three batches, and where each begins."""
    disk = MemoryDisk()
    log, _ = reopened(disk)
    starts = []
    for at in range(3):
        starts.append(log.size)
        log.append_built([(b"k", b"value %d" % at)], 0, NOW)
    log.sync()
    return disk, [*starts, log.size]


def with_file(disk: MemoryDisk, data: bytes, path: str = FIRST) -> MemoryDisk:
    twin = disk.copy()
    file = twin.open(path)
    file.truncate(0)
    file.append(data)
    return twin


def test_each_cut_of_the_last_batch_is_a_torn_tail():
    """Wherever in the last batch the file ends, exactly that batch is cut, and its size is reported."""
    disk, starts = three_batches()
    data = disk.read(FIRST)
    for end in range(starts[2], starts[3] + 1):
        log, found = reopened(with_file(disk, data[:end]))
        kept = 3 if end == starts[3] else 2
        assert values(log) == [b"value 0", b"value 1", b"value 2"][:kept]
        assert log.end_offset == log.synced_offset == kept
        assert found.cut_bytes == (0 if kept == 3 else end - starts[2])
        if found.cut_bytes:
            assert (found.cut_at_offset, found.cut_file) == (2, FIRST)
            assert "cut" in str(found)
        assert log.append_built([(b"k", b"next")], 0, NOW).base_offset == kept
        assert values(log)[-1] == b"next"


def test_each_flipped_byte_of_the_last_batch_is_noticed():
    """No damaged record is ever served: the last batch goes, or only what no checksum covers changed."""
    disk, starts = three_batches()
    data = disk.read(FIRST)
    for at in range(starts[2], starts[3]):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        uncovered = at - starts[2] < 8 or 12 <= at - starts[2] < 16
        try:
            log, _ = reopened(with_file(disk, bytes(damaged)))
        except DamagedLog:
            assert at - starts[2] < 8  # an offset that cannot be, and a checksum that holds: no torn tail
            continue
        assert values(log)[:2] == [b"value 0", b"value 1"]
        assert values(log)[2:] == [] or (uncovered and values(log)[2:] == [b"value 2"])


def test_each_flipped_byte_before_a_sound_batch_is_refused():
    """Damage with a sound batch behind it is never cut away: the error names the file and the place."""
    disk, starts = three_batches()
    data = disk.read(FIRST)
    for at in range(starts[1], starts[2]):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        place = with_file(disk, bytes(damaged))
        if 12 <= at - starts[1] < 16 or at - starts[1] < 8:
            continue  # base offset and leader epoch stand in front of the checksum
        with pytest.raises(DamagedLog) as refusal:
            reopened(place)
        assert (refusal.value.path, refusal.value.position) == (FIRST, starts[1])


def test_an_offset_that_was_raised_takes_nothing_behind_it_along():
    """The base offset stands in front of the checksum: changed, it makes sound batches look out of place."""
    disk, starts = three_batches()
    for at in range(8):
        damaged = bytearray(disk.read(FIRST))
        damaged[starts[1] + at] ^= 1 if at < 7 else 0x40
        with pytest.raises(DamagedLog) as refusal:
            reopened(with_file(disk, bytes(damaged)))
        assert refusal.value.path == FIRST


def test_an_offset_that_falls_is_damage():
    """A base offset before the one that is due cannot have been written."""
    disk, starts = three_batches()
    data = bytearray(disk.read(FIRST))
    data[starts[1] : starts[1] + 8] = bytes(8)
    with pytest.raises(DamagedLog):
        reopened(with_file(disk, bytes(data)))


def test_a_lost_segment_in_the_middle_is_refused():
    """A segment whose tail is lost while the next one has records is a gap, not a tail."""
    disk = MemoryDisk()
    log, _ = reopened(disk)
    for at in range(18):
        log.append_built([(b"k", b"value %d" % at)], 0, NOW)
    log.sync()
    assert len(log.segments) == 3
    middle = log.segments[1]
    data = disk.read(middle.path)
    cut = with_file(disk, data[: rb.read_header(data).size], middle.path)
    with pytest.raises(DamagedLog) as refusal:
        reopened(cut)
    assert refusal.value.path == middle.path


def test_an_end_before_what_was_durable_is_refused():
    """A log that is shorter than its recovery point has lost acknowledged records."""
    disk, starts = three_batches()
    short = with_file(disk, disk.read(FIRST)[: starts[2]])
    with pytest.raises(DamagedLog):
        reopened(short, recovery_point=3)


def test_what_is_below_the_recovery_point_is_not_read_again():
    """Only segments from the recovery point on are scanned, and the rest is trusted."""
    disk = MemoryDisk()
    log, _ = reopened(disk)
    for at in range(30):
        log.append_built([(b"k", b"value %d" % at)], 0, NOW)
    log.sync()
    last = log.segments[-1]
    again, found = reopened(disk.copy(), recovery_point=last.base_offset)
    assert found.scanned_bytes == last.size
    assert values(again) == values(log)


def test_garbage_behind_a_clean_close_is_noticed():
    """A mark of a clean close does not make foreign bytes readable."""
    disk, _ = three_batches()
    log, _ = reopened(disk)
    log.close()
    file = disk.open(FIRST)
    file.append(b"garbage")
    again, found = open_log(disk, PLACE, CONFIG, clean=True, now_ms=NOW)
    assert found.cut_bytes == 7
    assert values(again) == [b"value 0", b"value 1", b"value 2"]


# crash points ----------------------------------------------------------------------------------


class AcknowledgedWrites:
    """The writes acknowledged to a caller, which have to survive a crash."""

    def __init__(self) -> None:
        self.durable: list[bytes] = []
        self.written: list[bytes] = []
        self.start = 0


def workload(disk: MemoryDisk, acknowledged: AcknowledgedWrites, seed: int) -> None:
    """A life of one log: opened, written, synced, rolled, checkpointed, trimmed, closed, opened again."""
    chance = random.Random(seed)
    for life in range(2):
        directory = LogDirectory.open(disk, "/d", Identity("cluster", 1, "here"))
        (log,) = directory.create([TopicPartition("t", 0)], CONFIG, NOW)
        for step in range(12):
            for _ in range(chance.randrange(1, 3)):
                value = b"%d/%d/%d " % (life, step, len(acknowledged.written)) + bytes(chance.randrange(60))
                log.append_built([(b"k", value)], life, NOW)
                acknowledged.written.append(value)
            if chance.randrange(3) == 0:
                count = len(acknowledged.written)
                log.sync()
                acknowledged.durable = acknowledged.written[:count]
            if chance.randrange(4) == 0:
                directory.checkpoint()
        if life == 0 and chance.randrange(2):
            log.sync()
            acknowledged.durable = list(acknowledged.written)
            # What is trimmed may go or stay: the checkpoint decides.
            acknowledged.start = log.delete_records_before(log.end_offset // 2)
            log.retain(NOW)
            directory.checkpoint()
        count = len(acknowledged.written)
        directory.close()
        acknowledged.durable = acknowledged.written[:count]


def verify(disk: MemoryDisk, acknowledged: AcknowledgedWrites) -> None:
    """Check that every durable record exists, followed by a prefix of the other writes; the log works."""
    directory = LogDirectory.open(disk, "/d", Identity("cluster", 1, "here"))
    partition = TopicPartition("t", 0)
    if partition not in directory.partitions():
        assert acknowledged.durable == []
        return
    log = directory.load(partition, CONFIG, NOW)
    found = values(log)
    assert log.start_offset <= acknowledged.start
    assert acknowledged.written[log.start_offset : log.end_offset] == found
    assert log.end_offset >= len(acknowledged.durable)
    assert log.append_built([(b"k", b"alive")], 9, NOW).base_offset == len(found) + log.start_offset
    acknowledged.written = [*acknowledged.written[: log.end_offset - 1], b"alive"]
    log.sync()
    acknowledged.durable = acknowledged.written
    directory.close()


CHOICES: dict[str, Callable[[random.Random], Callable[[int], int]]] = {
    "nothing unsynced survives": lambda _chance: lambda _count: 0,
    "everything survives": lambda _chance: lambda count: count - 1,
    "any of it survives": lambda chance: chance.randrange,
}


def _operations(seed: int) -> int:
    disk = MemoryDisk()
    workload(disk, AcknowledgedWrites(), seed)
    return disk.calls


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("luck", CHOICES)
def test_a_power_cut_at_any_operation_loses_nothing_acknowledged(seed: int, luck: str):
    """The world ends at each file operation in turn: synced records are there, nothing half-visible is."""
    for at in range(1, _operations(seed) + 1):
        disk, acknowledged = MemoryDisk(), AcknowledgedWrites()
        disk.cut_power_at = at
        with pytest.raises(PowerCut):
            workload(disk, acknowledged, seed)
        chance = random.Random(seed * 100_003 + at)
        verify(disk.crash(CHOICES[luck](chance)), acknowledged)


@pytest.mark.parametrize("code", [5, 28])
@pytest.mark.parametrize("seed", range(3))
def test_a_failure_of_any_operation_loses_nothing_acknowledged(seed: int, code: int):
    """Each file operation fails once in turn (EIO, ENOSPC, an append half done): after a new start
    everything acknowledged is there."""
    for at in range(1, _operations(seed) + 1):
        disk, acknowledged = MemoryDisk(), AcknowledgedWrites()
        disk.fail[at] = code
        try:
            workload(disk, acknowledged, seed)
        except (LogOffline, OSError):
            pass
        else:
            pytest.fail(f"operation {at} failed and nobody heard of it: {disk.operations[at - 1]}")
        verify(disk.copy(), acknowledged)


@settings(max_examples=depth.examples(40), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_two_crashes_are_no_worse_than_one(seed: int, at: int):
    """A crash during the recovery from a crash still loses nothing acknowledged."""
    chance = random.Random(seed)
    disk, acknowledged = MemoryDisk(), AcknowledgedWrites()
    disk.cut_power_at = at
    with contextlib.suppress(PowerCut):
        workload(disk, acknowledged, seed)
    first = disk.crash(lambda _count: 0)
    first.cut_power_at = chance.randrange(1, 60)
    try:
        verify(first, acknowledged)
    except PowerCut:
        verify(first.crash(lambda _count: 0), acknowledged)
