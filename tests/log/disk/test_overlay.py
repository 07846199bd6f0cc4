"""A disk over files: everything can be done, and the files below stay as they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.log.disk.overlay import OverlayDisk

NOW = 1_760_000_000_000
ME = Identity("clusterA", 1, "dirA")
T0 = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)


def sums(path: Path) -> dict[str, tuple[str, int]]:
    return {
        str(each.relative_to(path)): (hashlib.sha256(each.read_bytes()).hexdigest(), each.stat().st_mtime_ns)
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_opened_recovered_and_written_and_nothing_happens(tmp_path: Path, clean: bool) -> None:
    """Also a torn tail, which is cut; what was written is read again on the same disk, and on no other."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    (log,) = directory.create([T0], SMALL, NOW)
    for at in range(20):
        log.append_built([(b"k", b"%d" % at)], 0, NOW)
    log.sync()
    directory.close(clean=clean)
    if not clean:
        with open(log.segments[-1].path, "ab") as file:
            file.write(b"torn")
    before = sums(tmp_path)
    disk = OverlayDisk()
    directory = LogDirectory.open(disk, str(tmp_path), ME)
    log = directory.load(T0, SMALL, NOW)
    assert log.end_offset == 20
    for at in range(20, 40):
        log.append_built([(b"k", b"%d" % at)], 0, NOW)
    log.sync()
    log.delete_records_before(10)
    assert log.retain(NOW)
    directory.truncate(T0, 35)
    directory.close()
    again = LogDirectory.open(disk, str(tmp_path), ME)
    log = again.load(T0, SMALL, NOW)
    assert (log.start_offset, log.end_offset) == (10, 35)
    assert sum(header.record_count for header, _ in log.batches_from(10)) == 25
    again.close()
    assert sums(tmp_path) == before
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert directory.load(T0, SMALL, NOW).end_offset == 20
    directory.close()


def test_files_as_they_would_be(tmp_path: Path) -> None:
    """Grown, cut, moved, linked and removed, beside those that are there."""
    below = tmp_path / "a"
    below.write_bytes(b"0123456789")
    disk, home = OverlayDisk(), str(tmp_path)
    file = disk.open(f"{home}/a")
    file.append(b"abc")
    assert (file.pread(6, 7), file.size(), disk.read(f"{home}/a")) == (b"789abc", 13, b"0123456789abc")
    file.truncate(11)
    assert file.pread(99, 0) == b"0123456789a"
    file.truncate(4)
    file.append(b"x")
    assert [file.pread(2, at) for at in (0, 3, 4, 5)] == [b"01", b"3x", b"x", b""]
    with below.open("ab") as growing:
        growing.write(b"more")
    assert disk.read(f"{home}/a") == b"0123x", "it is as long as it was"
    disk.link(f"{home}/a", f"{home}/b")
    disk.rename(f"{home}/a", f"{home}/c")
    assert disk.listdir(home) == ["b", "c"]
    disk.mkdir(f"{home}/d/e")
    assert (disk.folders(home), disk.is_directory(f"{home}/d/e")) == (["d"], True)
    disk.remove(f"{home}/b")
    for name in ("a", "b"):
        assert not disk.exists(f"{home}/{name}")
        with pytest.raises(FileNotFoundError):
            disk.open(f"{home}/{name}")
    with pytest.raises(FileExistsError):
        disk.link(f"{home}/c", f"{home}/d")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]
