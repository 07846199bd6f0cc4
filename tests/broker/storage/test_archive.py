"""The archive receives each finished segment completely, once and in order, before the log drops it."""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from konvene.broker.storage.archive import CANNOT_LINK, Archive, FinishedSegment, SegmentStore
from konvene.codec.batches import batches
from konvene.configs import BrokerConfig, ConfigError
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import Disk, RealDisk
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.partition import PartitionLog
from konvene.pipeline.sources.files import Partition, find

NOW = 1_760_000_000_000
ME = Identity("clusterA", 1, "dirA")
TP = TopicPartition("__consumer_offsets", 0)
TOPIC_ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)


class NoLinks(MemoryDisk):
    """A disk without hard links."""

    def blank(self) -> MemoryDisk:
        return NoLinks()

    def link(self, source: str, target: str) -> None:
        self._operation("link", source)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)


DISKS = pytest.mark.parametrize("make", [MemoryDisk, NoLinks], ids=["linked", "copied"])


def directory_on(disk: Disk, path: str = "/data") -> LogDirectory:
    return LogDirectory.open(disk, path, ME)


def opened(directory: LogDirectory, of: TopicPartition = TP, topic_id: str = TOPIC_ID) -> PartitionLog:
    return directory.create([of], SMALL, NOW, topic_id=topic_id)[0]


def written(log: PartitionLog, batches: int = 12) -> PartitionLog:
    """Append batches, a few per segment, and sync."""
    for _ in range(batches):
        base = log.end_offset
        log.append_built([(b"k%d" % at, b"v" * 20) for at in range(base, base + 3)], 0, NOW)
    log.sync()
    return log


def archive_of(directory: LogDirectory, path: str = "/kept") -> Archive:
    return Archive(directory, {TP.topic}, SegmentStore(directory.disk, path, directory.identity.cluster_id))


def offsets(data: bytes) -> list[int]:
    return [offset for header, _ in batches(data) for offset in range(header.base_offset, header.next_offset)]


def kept(disk: Disk, path: str = "/kept", of: TopicPartition = TP) -> dict[str, bytes]:
    """Return the archived segments of a partition, by file name."""
    folder = f"{path}/{of}"
    if not disk.exists(folder):
        return {}
    return {name: disk.read(f"{folder}/{name}") for name in disk.listdir(folder) if name.endswith(".log")}


def in_log(log: PartitionLog, upto: int) -> dict[str, bytes]:
    """Return the finished segments of the log that end at or before the offset `upto`, by file name."""
    return {
        s.path.rpartition("/")[2]: log._disk.read(s.path) for s in log.segments[:-1] if s.next_offset <= upto
    }


@DISKS
def test_an_archive_is_a_data_directory_with_the_same_bytes(make: Callable[[], MemoryDisk]) -> None:
    """It has Kafka's file names, the topic and cluster id, the indexes, and no temporary files."""
    disk = make()
    log = written(opened(directory := directory_on(disk)))
    assert len(log.segments) > 3
    assert archive_of(directory).hand_over(log, log.segments[:-1])
    assert kept(disk) == in_log(log, log.end_offset)
    assert disk.read("/kept/meta.properties") == b"version=1\ncluster.id=clusterA\nnode.id=-1\n"
    assert disk.read(f"/kept/{TP}/partition.metadata") == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    names = disk.listdir(f"/kept/{TP}")
    stems = [s.path.rpartition("/")[2][:20] for s in log.segments[:-1]]
    assert names == sorted(
        [
            *(stem + suffix for stem in stems for suffix in (".index", ".log", ".timeindex")),
            "partition.metadata",
        ]
    )
    for stem in stems:
        for suffix in (".index", ".timeindex"):
            assert disk.read(f"/kept/{TP}/{stem}{suffix}") == disk.read(f"/data/{TP}/{stem}{suffix}")


def test_a_missing_index_is_rebuilt_in_the_archive() -> None:
    """Readers of the archive split segments by it. The log's own index stays missing, for recovery."""
    disk = MemoryDisk()
    log = opened(directory := directory_on(disk))
    log.config = LogConfig(segment_bytes=20_000)
    log.segments[0]._interval = log.config.index_interval_bytes
    written(log, 300)
    name = "00000000000000000000.index"
    index = disk.read(f"/data/{TP}/{name}")
    disk.remove(f"/data/{TP}/{name}")
    assert archive_of(directory).hand_over(log, log.segments[:1])
    assert disk.read(f"/kept/{TP}/{name}") == index != b""
    assert not disk.exists(f"/data/{TP}/{name}")


def test_the_pipeline_recognizes_the_same_log(tmp_path: Path) -> None:
    """The archive names the same cluster, topic and partition; segments are hard links."""
    directory = directory_on(RealDisk(), str(tmp_path / "data"))
    log = written(opened(directory))
    path = tmp_path / "far" / "away" / "kept"
    assert archive_of(directory, str(path)).hand_over(log, log.segments[:2])
    found = find([tmp_path / "data", path]).partitions()
    assert list(found) == [Partition("clusterA", *TP)]
    assert [copy.topic_id for copy in found[Partition("clusterA", *TP)]] == [TOPIC_ID] * 2
    first = log.segments[0].path
    assert os.path.samefile(first, path / str(TP) / os.path.basename(first))  # noqa: PTH119, PTH121
    directory.close()


@DISKS
def test_a_segment_is_archived_once_and_later_ones_are_added(make: Callable[[], MemoryDisk]) -> None:
    """Archiving again does nothing, also in a new Archive object; only newer segments are added."""
    disk = make()
    directory = directory_on(disk)
    log = written(opened(directory))
    archive = archive_of(directory)
    assert archive.hand_over(log, log.segments[:2])
    before, calls = kept(disk), disk.calls
    assert archive.hand_over(log, log.segments[:2])
    assert disk.calls - calls < 3
    assert archive_of(directory).hand_over(log, log.segments[:2])
    assert kept(disk) == before
    written(log)
    assert archive_of(directory).hand_over(log, log.segments[:-1])
    assert kept(disk) == in_log(log, log.end_offset)


def test_a_cleaned_segment_does_not_replace_the_archived_one() -> None:
    """A cleaned segment has the name of an old one, and may span several of them."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory))
    archive = archive_of(directory)
    assert archive.hand_over(log, log.segments[:2])
    before = kept(disk)
    cleaned = merged(log, 2)
    for again in (archive, archive_of(directory)):
        assert again.hand_over(cleaned, cleaned.segments[:1])
        assert kept(disk) == before


def test_a_segment_that_was_cleaned_without_an_archive_is_appended() -> None:
    """A segment across the archive's end is copied from that offset on, so that no offset appears twice."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory))
    assert archive_of(directory).hand_over(log, log.segments[:1])
    whole = disk.read(log.segments[0].path) + disk.read(log.segments[1].path)
    end, next_base = log.segments[0].next_offset, log.segments[2].base_offset
    cleaned = merged(log, 2)
    assert archive_of(directory).hand_over(cleaned, cleaned.segments[:2])
    found = kept(disk)
    assert list(found)[:2] == ["00000000000000000000.log", f"{end:020d}.log"]
    assert b"".join(list(found.values())[:2]) == whole
    assert offsets(b"".join(found.values())) == list(range(cleaned.segments[2].base_offset))
    assert cleaned.segments[1].base_offset == next_base


def merged(log: PartitionLog, count: int) -> PartitionLog:
    """Merge the first `count` segments into one, as a cleaning does, and reopen the log."""
    disk, folder = log._disk, log.directory
    first = log.segments[0]
    data = b"".join(disk.read(segment.path) for segment in log.segments[:count])
    log.close()
    for segment in log.segments[:count]:
        segment.remove()
    disk.open(first.path, create=True).append(data)
    disk.open(first.path).sync()
    from konvene.log.opening import open_log

    return open_log(disk, folder, SMALL, clean=True, now_ms=NOW)[0]


@DISKS
@pytest.mark.parametrize("lucky", [False, True], ids=["unsynced-lost", "some-of-it-there"])
def test_a_power_failure_at_any_operation_leaves_complete_first_segments(
    make: Callable[[], MemoryDisk], lucky: bool
) -> None:
    """Archived segments are complete and contiguous; archiving again adds the missing ones."""
    for number, (disk, wanted) in enumerate(cuts(make)):
        chance = random.Random(number)
        for found in (disk.copy(), disk.crash(chance.randrange) if lucky else disk.crash()):
            archived = kept(found)
            assert list(archived.items()) == list(wanted.items())[: len(archived)]
            directory = LogDirectory.open(found, "/data", ME)
            log = directory.load(TP, SMALL, NOW)
            assert archive_of(directory).hand_over(log, log.segments[:-1])
            assert kept(found) == wanted
            assert not [name for name in found.listdir(f"/kept/{TP}") if name.endswith(".tmp")]


def cuts(make: Callable[[], MemoryDisk]) -> Iterator[tuple[MemoryDisk, dict[str, bytes]]]:
    """Yield a disk for each operation of an archiving that lost power there, and the expected segments."""
    at = 1
    while True:
        disk = make()
        directory = directory_on(disk)
        log = written(opened(directory), 6)
        wanted = in_log(log, log.end_offset)
        disk.cut_power_at = disk.calls + at
        try:
            assert archive_of(directory).hand_over(log, log.segments[:-1])
        except PowerCut:
            directory._lock.release()
            disk.cut_power_at = None
            yield disk, wanted
            at += 1
            continue
        assert at > 10
        assert kept(disk.crash()) == wanted, "an acknowledged segment is not durable"
        return


@DISKS
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failure_at_any_operation_keeps_the_segments_in_the_log(
    make: Callable[[], MemoryDisk], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged once, the log accepts writes, and the next attempt archives all segments."""
    at, failures = 1, 0
    while True:
        disk = make()
        directory = directory_on(disk)
        log = written(opened(directory), 6)
        archive = archive_of(directory)
        first = disk.calls + at
        disk.fail = dict.fromkeys(range(first, first + 1), code)
        caplog.clear()
        with caplog.at_level(logging.ERROR, "konvene.archive"):
            done = archive.hand_over(log, log.segments[:-1])
        if disk.calls < first:
            break
        if done:  # The failed operation was optional, such as removing a temporary file.
            assert not archive.failing
        else:
            failures += 1
            assert os.strerror(code) in archive.failing[TP]
            assert len(caplog.records) == 1
            assert list(kept(disk).items()) == list(in_log(log, log.end_offset).items())[: len(kept(disk))]
        written(log, 1)
        assert archive.hand_over(log, log.segments[:-1])
        assert kept(disk) == in_log(log, log.end_offset)
        assert not archive.failing
        at += 1
    assert failures > 10


def test_a_full_disk_and_its_recovery_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = NoLinks()
    directory = directory_on(disk)
    log = written(opened(directory))
    archive = archive_of(directory)
    disk.fail = dict.fromkeys(range(disk.calls, 100_000), errno.ENOSPC)
    with caplog.at_level(logging.INFO, "konvene.archive"):
        for _ in range(3):
            assert not archive.hand_over(log, log.segments[:-1])
        disk.fail = {}
        assert archive.hand_over(log, log.segments[:-1])
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "neither cleaned nor shortened" in caplog.records[0].getMessage()


def test_another_clusters_archive_is_not_changed() -> None:
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory))
    assert archive_of(directory).hand_over(log, log.segments[:1])
    other = Archive(directory, {TP.topic}, SegmentStore(disk, "/kept", "clusterB"))
    assert not other.hand_over(log, log.segments[:-1])
    assert "belongs to cluster clusterA" in other.failing[TP]
    assert len(kept(disk)) == 1


def test_a_truncated_log_is_not_mixed_with_its_archived_segments() -> None:
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory))
    archive = archive_of(directory)
    assert archive.hand_over(log, log.segments[:-1])
    directory.truncate(TP, log.segments[1].base_offset)
    again = archive_of(directory)
    # The next append starts a segment; the truncated one is finished.
    log.roll(NOW)
    assert not again.hand_over(log, log.segments[:-1])
    assert "the log was truncated" in again.failing[TP]


def test_a_recreated_topic_starts_a_new_archive() -> None:
    """The old topic's directory is renamed to a `-stray` name, which brokers and the pipeline ignore."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    archive = archive_of(directory)
    log = written(opened(directory))
    assert archive.hand_over(log, log.segments[:-1])
    old = kept(disk)
    directory.delete(TP, "token")
    assert not archive.hand_over(log, log.segments[:1])
    assert not archive.failing, "a deleted log is not a failure"
    log = written(opened(directory, topic_id=OTHER_ID), 8)
    assert archive.hand_over(log, log.segments[:-1])
    assert kept(disk) == in_log(log, log.end_offset)
    (stray,) = [name for name in disk.folders("/kept") if name.endswith("-stray")]
    assert stray == f"{TP}.{TOPIC_ID}-stray"
    assert {n: disk.read(f"/kept/{stray}/{n}") for n in disk.listdir(f"/kept/{stray}") if ".log" in n} == old


def test_topics_that_are_not_archived() -> None:
    """Segments of other topics are dropped, and all of them without a store and without takers."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory, TopicPartition("orders", 0)))
    calls = disk.calls
    assert archive_of(directory).hand_over(log, log.segments[:-1])
    archive = Archive(directory, {"orders"})
    assert not archive.accepts(log)
    assert archive.hand_over(log, log.segments[:-1])
    assert disk.calls == calls
    archive.takers.append(lambda _finished: None)
    assert archive.accepts(log)


def test_a_taker_receives_each_segment_once_and_may_raise() -> None:
    """If a taker raises, the segments stay in the log, and the taker receives them again."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = written(opened(directory))
    taken: list[FinishedSegment] = []
    ready = False

    def take(finished: FinishedSegment) -> None:
        if not ready and taken:
            raise RuntimeError("not now")
        assert disk.read(finished.path)
        taken.append(finished)

    archive = Archive(directory, {TP.topic})
    archive.takers.append(take)
    assert not archive.hand_over(log, log.segments[:-1])
    assert archive.failing == {TP: "RuntimeError: not now"}
    ready = True
    assert archive.hand_over(log, log.segments[:-1])
    assert archive.hand_over(log, log.segments[:-1])
    assert [(each.base_offset, each.next_offset) for each in taken] == [
        (segment.base_offset, segment.next_offset) for segment in log.segments[:-1]
    ]
    assert all(a.next_offset == b.base_offset for a, b in pairwise(taken))
    assert taken[0] == FinishedSegment(*TP, TOPIC_ID, 0, log.segments[0].next_offset, log.segments[0].path)


def test_unsynced_segments_are_synced_before_they_are_archived() -> None:
    """Also for topics that are not synced on roll; their indexes are written as well."""
    disk = MemoryDisk()
    directory = directory_on(disk)
    log = opened(directory)
    log.config = LogConfig(segment_bytes=400, index_interval_bytes=100, sync_on_roll=False)
    for at in range(12):
        log.append_built([(b"k%d" % at, b"v" * 60)], 0, NOW)
    assert archive_of(directory).hand_over(log, log.segments[:-1])
    found = kept(disk.crash())
    assert found == in_log(log, log.end_offset)
    assert len(found) == len(log.segments) - 1
    assert disk.exists(f"/kept/{TP}/00000000000000000000.index")


def test_an_archive_in_the_data_directory_is_rejected(tmp_path: Path) -> None:
    directory = directory_on(RealDisk(), str(tmp_path / "data"))
    for inside in ("data", "data/kept", "data/../data"):
        config, _ = BrokerConfig.load(overrides=[("konvene.log.archive.dir", str(tmp_path / inside))])
        with pytest.raises(ConfigError, match="is in the data directory"):
            Archive.of(config, directory)
    config, _ = BrokerConfig.load(overrides=[("konvene.log.archive.dir", str(tmp_path / "data-kept"))])
    assert Archive.of(config, directory).store is not None
    assert Archive.of(BrokerConfig.load()[0], directory).store is None
    directory.close()


def test_storage_errors_are_not_unsupported_links() -> None:
    """The archive copies a file only if links are unsupported, not if the disk is full or broken."""
    assert not CANNOT_LINK & {errno.ENOSPC, errno.EIO, errno.EROFS, errno.EEXIST, errno.ENOENT, errno.EDQUOT}
