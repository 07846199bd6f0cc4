"""What a clean close writes down saves the next start a look, and is never believed against the files."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from konvene.codec import batches as rb
from konvene.codec.errors import Malformed
from konvene.log import directory as directories
from konvene.log import summary
from konvene.log.config import LogConfig
from konvene.log.directory import CLEAN_MARK, Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.partition import PartitionLog

NOW = 1_760_000_000_000
ME = Identity("clusterA", 1, "dirA")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
FIRST = "/d/t-0/00000000000000000000"


def opened(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "/d", ME)


def loaded(disk: MemoryDisk, partition: TopicPartition = T0) -> PartitionLog:
    return opened(disk).load(partition, CONFIG, NOW)


def write(log: PartitionLog, count: int, *, producer: int = -1, first: int = 0, now_ms: int = NOW) -> None:
    for at in range(first, first + count):
        data = rb.build(
            [rb.Record(0, now_ms + at, b"k", b"v%d" % at, ())],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=at if producer >= 0 else -1,
        )
        log.append_as_leader(data, 3, now_ms + at)


def closed(batches: int = 20) -> MemoryDisk:
    """Two logs of several segments with a producer each, closed properly."""
    disk = MemoryDisk()
    directory = opened(disk)
    for log in directory.create([T0, T1], CONFIG, NOW):
        write(log, batches, producer=7)
    directory.close()
    return disk


def facts(log: PartitionLog) -> dict[str, object]:
    """All that a log knows of itself, indexes read."""
    return {
        "offsets": (log.start_offset, log.end_offset, log.synced_offset),
        "epochs": log.epochs.starts,
        "producers": {key: repr(value) for key, value in log.producers.by_id.items()},
        "segments": [repr(segment) for segment in log.segments],
        "indexes": [(bytes(each.offsets.data), bytes(each.times.data)) for each in log.segments],
        "largest": [(each.max_timestamp, each.max_timestamp_offset) for each in log.segments],
        "active": (log.active_segment.first_timestamp, log.active_segment.unindexed),
        "batches": [(header.base_offset, bytes(view)) for header, view in log.batches_from()],
    }


def without_summary(disk: MemoryDisk) -> MemoryDisk:
    twin = disk.copy()
    twin.remove(f"/d/{summary.SUMMARY_NAME}")
    return twin


def test_the_next_start_reads_no_file_of_a_partition() -> None:
    """Not one is opened, listed or written, and the state of the log is the same as before."""
    disk = closed()
    directory = opened(disk)
    before = len(disk.operations)
    log = directory.load(T0, CONFIG, NOW)
    touched = [(kind, path) for kind, path in disk.operations[before:] if kind != "open"]
    assert touched == []
    assert str(directory.recovered[T0]) == "clean"
    assert facts(log) == facts(loaded(without_summary(closed())))


def test_a_log_that_was_not_touched_is_not_written_again() -> None:
    """A second start and stop leaves the folders alone."""
    disk = closed()
    directory = opened(disk)
    directory.load_all(lambda _partition: CONFIG, NOW)
    before = len(disk.operations)
    directory.close()
    assert [path for _, path in disk.operations[before:] if path.startswith("/d/t-")] == []
    assert opened(disk)._summaries.keys() == {"t-0", "t-1"}


@pytest.mark.parametrize("more", [1, 3, 9, 40])
def test_a_log_taken_up_goes_on_as_if_it_had_been_read(more: int) -> None:
    """Appends, rolls, times and indexes are the same in both, and after the next close as well."""
    disk, twin = closed(9), without_summary(closed(9))
    for _ in range(2):
        found = []
        for each in (disk, twin):
            directory = opened(each)
            log = directory.load(T0, CONFIG, NOW)
            write(log, more, producer=7, first=log.end_offset, now_ms=NOW + 5)
            log.sync()
            found.append((facts(log), log.offset_for_timestamp(NOW + 7), log.max_timestamp()))
            directory.close()
        assert found[0] == found[1]
        twin.remove(f"/d/{summary.SUMMARY_NAME}")


def test_appending_behind_a_large_time_keeps_it() -> None:
    """The indexes are read when the first entry is due: the largest time is not forgotten over it."""
    disk = MemoryDisk()
    directory = opened(disk)
    (log,) = directory.create([T0], LogConfig(index_interval_bytes=100), NOW)
    write(log, 3)
    directory.close()
    log = opened(disk).load(T0, LogConfig(index_interval_bytes=100), NOW)
    log.append_built([(b"k", b"v" * 200)], 3, NOW + 50)
    write(log, 9)
    assert log.max_timestamp() == (NOW + 50, 3, 3)


def grow(disk: MemoryDisk) -> None:
    disk.open("/d/t-0/00000000000000000000.log").append(b"torn")


def lose(disk: MemoryDisk) -> None:
    disk.remove("/d/t-0/00000000000000000000.log")


def lose_index(disk: MemoryDisk) -> None:
    disk.remove(f"{FIRST}.index")


def shorten(disk: MemoryDisk) -> None:
    path = "/d/t-0/00000000000000000000.log"
    disk.open(path).truncate(disk.size(path) - 5)


@pytest.mark.parametrize("change", [grow, lose, lose_index, shorten])
def test_what_changed_meanwhile_is_looked_at(change: Callable[[MemoryDisk], None]) -> None:
    """Whatever was done to a partition, the outcome is that of a start without the summary."""

    def outcome(disk: MemoryDisk) -> object:
        change(disk)
        try:
            return facts(loaded(disk))
        except Exception as refusal:
            return str(refusal)

    base = MemoryDisk()
    directory = opened(base)
    (log,) = directory.create([T0], LogConfig(index_interval_bytes=100), NOW)
    write(log, 12, producer=7)
    directory.close()
    assert outcome(base.copy()) == outcome(without_summary(base))


def test_an_index_that_is_not_the_one_that_was_left_is_made_again() -> None:
    """Changed in place, so that no name and no time of the folder changes: its checksum reveals it."""
    disk = closed()
    index = bytes(disk._inode(f"{FIRST}.index").data)
    disk._inode(f"{FIRST}.index").data[3] ^= 1
    log = loaded(disk)
    assert bytes(log.segments[0].offsets.data) == index
    assert log.segments[0].max_timestamp == loaded(closed()).segments[0].max_timestamp


def test_an_index_is_looked_at_before_its_segment_is_finished() -> None:
    """A sync in another thread finishes the files of a segment: by then nothing of it is made anew."""
    disk = closed(3)
    disk._inode(f"{FIRST}.index").data += b"\0\0\0\1"
    log = loaded(disk)
    first = log.active_segment
    log.append_built([(b"k", b"v" * 500)], 3, NOW)  # Too large for what is left of the segment.
    assert log.active_segment is not first
    before = len(disk.operations)
    log.sync()
    kinds = {kind for kind, _ in disk.operations[before:]}
    assert "pread" not in kinds
    assert "read" not in kinds


def test_kafkas_mark_does_not_vouch_for_our_summary() -> None:
    """Where another broker closed the directory after us, all of it is read."""
    for mark in (b'{"version":0,"brokerEpoch":7}', b"", b'{"version":0,"brokerEpoch":-1}', b"[]", b"\xff"):
        disk = closed()
        file = disk.open(f"/d/{CLEAN_MARK}")
        file.truncate(0)
        file.append(mark)
        directory = opened(disk)
        assert directory.clean
        assert directory._summaries == {}
        assert not disk.exists(f"/d/{summary.SUMMARY_NAME}")


def test_the_mark_is_kafkas_and_vouches_for_the_summary() -> None:
    """Kafka reads its own two words and passes over the third."""
    disk = closed()
    mark = json.loads(disk.read(f"/d/{CLEAN_MARK}"))
    crc = summary.summary_crc(disk.read(f"/d/{summary.SUMMARY_NAME}"))
    assert mark == {"version": 0, "brokerEpoch": -1, "konvene.summary.crc": crc}


def test_each_changed_byte_of_a_summary_makes_it_void() -> None:
    """A summary is whole or nothing."""
    disk = closed(2)
    data = disk.read(f"/d/{summary.SUMMARY_NAME}")
    for at in range(len(data)):
        twin = disk.copy()
        twin._inode(f"/d/{summary.SUMMARY_NAME}").data[at] ^= 0x10
        assert opened(twin)._summaries == {}


def test_a_power_cut_while_much_is_written_at_one_stroke_loses_nothing(monkeypatch) -> None:
    """At every operation of a close, whether or not the disk can settle: all that was synced is there."""
    monkeypatch.setattr(directories, "BULK_LOGS", 1)
    for settles in (True, False):
        for at in range(1, 200):
            disk = MemoryDisk()
            disk.settles = settles
            directory = opened(disk)
            logs = directory.create([T0, T1], CONFIG, NOW)
            for log in logs:
                write(log, 6, producer=7)
                log.sync()
                write(log, 3, producer=7, first=6)
            disk.cut_power_at = disk.calls + at
            try:
                directory.close()
                ended = True
            except PowerCut:
                ended = False
            for choose in (lambda _count: 0, lambda count: count - 1, lambda count: count // 2):
                again = opened(disk.crash(choose))
                assert again.clean or not ended
                for log in again.load_all(lambda _partition: CONFIG, NOW).values():
                    assert 6 <= log.end_offset <= 9
                    assert log.end_offset == 9 or not again.clean
                    assert log.producers.by_id[7].last_sequence == log.end_offset - 1
                    assert [header.base_offset for header, _ in log.batches_from()] == list(
                        range(log.end_offset)
                    )
                assert again.damaged == {}
            if ended:
                break
        assert ended


def test_many_logs_on_a_real_disk_hold_few_descriptors(tmp_path) -> None:
    """All are written, closed at one stroke and taken up again, and never more are open than may be."""
    names = [TopicPartition("t", number) for number in range(100)]
    disk = RealDisk(max_open=16)
    directory = LogDirectory.open(disk, str(tmp_path), ME)
    for log in directory.create(names, CONFIG, NOW):
        write(log, 3, producer=7)
        assert disk.open_files <= 16
    directory.close()
    assert disk.open_files == 0
    again = LogDirectory.open(disk, str(tmp_path), ME)
    logs = again.load_all(lambda _partition: CONFIG, NOW)
    assert disk.open_files == 0
    assert [log.end_offset for log in logs.values()] == [3] * 100
    assert again._summaries == {}
    again.close()
    (tmp_path / summary.SUMMARY_NAME).unlink()
    third = LogDirectory.open(disk, str(tmp_path), ME)
    for name, log in third.load_all(lambda _partition: CONFIG, NOW).items():
        assert facts(log) == facts(logs[name])
    third.close(clean=False)
    fourth = LogDirectory.open(disk, str(tmp_path), ME)
    assert fourth._settled == disk.settle(str(tmp_path))
    assert all(log.synced_offset == 3 for log in fourth.load_all(lambda _p: CONFIG, NOW).values())
    fourth.close()


def test_a_disk_that_cannot_settle_after_all_is_written_file_by_file(monkeypatch) -> None:
    """The second stroke fails: nothing that it should have made durable counts."""
    monkeypatch.setattr(directories, "BULK_LOGS", 1)
    disk = MemoryDisk()
    directory = opened(disk)
    for log in directory.create([T0, T1], CONFIG, NOW):
        write(log, 9, producer=7)
    settled = MemoryDisk.settle
    answers = iter([True, False])
    monkeypatch.setattr(disk, "settle", lambda path: next(answers) and settled(disk, path), raising=False)
    directory.close()
    monkeypatch.undo()
    after = disk.crash()
    assert after.exists(f"{FIRST}.index")
    again = opened(after)
    assert again.clean
    assert facts(again.load(T0, CONFIG, NOW)) == facts(loaded(without_summary(disk)))


def test_after_a_crash_many_logs_are_made_durable_before_they_are_read(monkeypatch) -> None:
    """What was recovered from memory only is on the disk by then: a power cut takes none of it."""
    monkeypatch.setattr(directories, "BULK_LOGS", 1)
    for settles in (True, False):
        disk = MemoryDisk()
        disk.settles = settles
        directory = opened(disk)
        (log,) = directory.create([T0], CONFIG, NOW)
        write(log, 9)
        directory.close(clean=False)  # the process alone died: its writes are in memory
        assert loaded(disk).synced_offset == 9
        third = opened(disk.crash())
        assert third.load(T0, CONFIG, NOW).end_offset == 9


@pytest.mark.parametrize("data", [b"[" * 20_000, b'{"version":1,"logs":{"t-0":[]}}', b"", b"[]", b"\xff"])
def test_what_is_no_summary_is_refused_as_such(data: bytes):
    with pytest.raises(Malformed):
        summary.decode_summary(data)
