"""Unsynced segments: they are deleted, made durable later, or rolled without waiting."""

from __future__ import annotations

import pytest

from konvene.log.config import LogConfig
from konvene.log.disk.memory import MemoryDisk
from konvene.log.opening import LogCheckpoints, open_log
from konvene.log.partition import PartitionLog

NOW = 1_760_000_000_000


def segments_unsynced(count: int, config: LogConfig) -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log, _ = open_log(disk, "/d/t-0", config, clean=False, now_ms=NOW)
    for folder in ("/", "/d"):
        disk.sync_directory(folder)
    while len(log.segments) < count:
        log.append_built([(b"k", b"v" * 100)], 1, NOW)
    return disk, log


def test_retention_deletes_unsynced_segments():
    """A topic that leaves its records to the page cache is kept within its bounds all the same."""
    disk, log = segments_unsynced(5, LogConfig(segment_bytes=400, retention_bytes=600))
    deleted = log.retain(NOW)
    assert deleted == [0, 2, 4][: len(deleted)]
    assert deleted
    assert log.size < 600 + 400
    assert log.start_offset == log.segments[0].base_offset
    assert [name for name in disk.listdir("/d/t-0") if name.endswith(".log")] == [
        f"{segment.base_offset:020d}.log" for segment in log.segments
    ]
    log.sync()
    again, _ = open_log(disk.crash(), "/d/t-0", log.config, clean=False, now_ms=NOW)
    assert (again.start_offset, again.end_offset) == (log.start_offset, log.end_offset)


def test_retention_leaves_alone_what_is_being_synced():
    """While another thread syncs, its segments stay; the next round takes them."""
    _, log = segments_unsynced(5, LogConfig(segment_bytes=400, retention_bytes=600))
    with log._sync_lock:
        assert log.retain(NOW) == []
    assert log.retain(NOW) != []


def test_finished_segments_are_made_durable_without_the_active_one():
    """Then a crash leaves only the active segment to be read, with the epochs of the others known."""
    config = LogConfig(segment_bytes=400, sync_on_roll=False)
    disk, log = segments_unsynced(4, config)
    log.append_built([(b"k", b"v")], 2, NOW)
    assert log.synced_offset == 0
    assert log.sync_finished() == log.segments[-1].base_offset == log.synced_offset
    again, found = open_log(
        disk.crash(),
        "/d/t-0",
        config,
        clean=False,
        now_ms=NOW,
        checkpoints=LogCheckpoints(recovery_point=log.synced_offset),
    )
    assert again.end_offset == log.synced_offset
    assert found.scanned_bytes == 0
    assert again.epochs.starts == [(1, 0)]


@pytest.mark.parametrize("syncs", [True, False])
def test_a_roll_syncs_only_where_it_is_to(syncs: bool):
    """`sync_on_roll`: off, nothing is synced for a roll, and recovery cuts where a power cut left a gap."""
    config = LogConfig(segment_bytes=400, sync_on_roll=syncs)
    disk, log = segments_unsynced(3, config)
    assert ("sync" in [kind for kind, _ in disk.operations]) == syncs
    disk.sync_directory("/d/t-0")
    log.active_segment.file.sync()
    log.segments[1].file.sync()
    again, found = open_log(disk.crash(), "/d/t-0", config, clean=False, now_ms=NOW)
    assert (again.end_offset, found.cut_bytes > 0) == ((log.end_offset, False) if syncs else (0, True))
