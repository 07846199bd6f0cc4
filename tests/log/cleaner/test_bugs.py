"""Bugs of other brokers around compaction, each with the name under which it is known."""

from __future__ import annotations

from dataclasses import replace

from tests.log.cleaner.logs import CONFIG, NOW, T0, last_values, opened, put, run, task_for

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.codec.batches import build_simple, read_header
from konvene.groups.shard import GroupShard
from konvene.log.cleaner.cleaning import clean
from konvene.log.directory import LogDirectory
from konvene.log.disk.memory import MemoryDisk
from konvene.log.partition import PartitionLog
from konvene.records.commits import Committed, OffsetCommitted
from konvene.sim.world.cleaner import cleaned

SMALL = replace(CONFIG, segment_bytes=4_000, delete_retention_ms=0)


def test_kafka_9065_a_gap_before_the_end_of_the_log_ends_the_loading() -> None:
    """KAFKA-9065: all records before the end were cleaned away, and the coordinator went on asking for them,
    for ever. Here the log's end is where its last offset was, and reading gets there, also after a crash."""
    disk = MemoryDisk()
    directory, log = opened(disk, SMALL)
    for at in range(200):
        put(log, b"k%d" % (at % 5), b"v")
    for at in range(5):
        put(log, b"k%d" % at, None)
    log.roll(NOW)
    end = log.end_offset
    log.sync()
    for _ in range(2):  # The first one notes since when the tombstones are there.
        run(directory, clean)
        directory.set_cleaned_offset(T0, 0)
    assert last_values(log) == {}
    assert [header.base_offset for header, _ in log.batches_from()] == [end - 1], "it says where the log ends"
    assert (log.end_offset, log.read(end - 2, 1000) != b"", log.read(end, 1000)) == (end, True, b"")
    for found in (disk.copy(), disk.crash()):
        _, again = opened(found, SMALL)
        assert sum(1 for _ in again.batches_from()) == 1
        assert (again.end_offset, put(again, b"k", b"v")) == (end, end)


def commit(log: PartitionLog, producer: int, partition: int, offset: int) -> None:
    record = OffsetCommitted("g", "orders", partition, Committed(offset))
    log.append_built(
        [GROUP_SERDE.encode(record)], 0, NOW, producer_id=producer, producer_epoch=0, transactional=True
    )


def ended(log: PartitionLog, producer: int) -> None:
    log.append_marker(True, 0, NOW, producer_id=producer, producer_epoch=0, coordinator_epoch=0)


def loaded(log: PartitionLog) -> dict[int, int]:
    shard = GroupShard()
    for header, batch in log.batches_from():
        for _, _, record in GROUP_SERDE.read(batch, header):
            shard.replay(record)
    return {p: committed.offset for p, committed in shard.offsets["g"]["orders"].items()}


def finished(directory: LogDirectory, log: PartitionLog) -> None:
    log.roll(NOW)
    log.sync()
    run(directory, clean)


def test_redpanda_24637_offsets_of_transactions_are_cleaned_once_these_have_ended() -> None:
    """Redpanda#24637: offsets that groups committed in transactions kept their partition from being cleaned.
    Here only what is open does, and only from there on."""
    directory, log = opened(MemoryDisk(), SMALL)
    for at in range(300):
        commit(log, at % 7, at % 3, at)
        ended(log, at % 7)
    stuck = log.end_offset
    commit(log, 99, 3, 1_000)
    for at in range(300, 600):
        commit(log, at % 7, at % 3, at)
        ended(log, at % 7)
    before = log.size
    finished(directory, log)
    assert loaded(log) == {0: 597, 1: 598, 2: 599}
    assert task_for(directory, log).first_uncleanable_offset <= stuck
    assert log.size < 0.75 * before, "what had ended in front of the open one is cleaned"
    ended(log, 99)
    half = log.size
    # What is overtaken goes, then it is noted since when markers have nothing to mark, then they go.
    for _ in range(3):
        directory.set_cleaned_offset(T0, 0)
        finished(directory, log)
    assert loaded(log) == {0: 597, 1: 598, 2: 599, 3: 1_000}
    assert log.size < half / 10, "and now all of it"


def test_kafka_17306_tombstones_for_what_was_never_there_load() -> None:
    """KAFKA-17306: of a deleted group the cleaner may leave only tombstones, in any order."""
    of = GROUP_SERDE.encode
    written = [OffsetCommitted("gone", "orders", p, Committed(p)) for p in range(3)]
    removed = [OffsetCommitted("gone", "orders", p, None) for p in (2, 0, 1)]
    kept = OffsetCommitted("stays", "orders", 0, Committed(7))
    log = [
        bytes(build_simple([of(record)], NOW, base_offset=at))
        for at, record in enumerate([*written, kept, *removed])
    ]
    for begin in range(len(log)):
        left = cleaned(log, begin=begin)
        shard = GroupShard()
        for batch in left[begin:] + left[:begin]:
            for _, _, record in GROUP_SERDE.read(memoryview(batch), read_header(batch)):
                shard.replay(record)
        assert shard.offsets["stays"]["orders"][0].offset == 7
