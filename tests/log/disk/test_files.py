"""The door to the disk: few descriptors for many files, and no failure forgotten."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from konvene.log.disk.files import RealDisk, replace


def test_many_files_share_few_descriptors(tmp_path):
    """More files than the bound are all appended to and read, and never more are open."""
    disk = RealDisk(max_open=8)
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = [disk.open(str(tmp_path / f"{at}"), create=True) for at in range(50)]
    for turn in range(3):
        for at, file in enumerate(files):
            file.append(b"%d:%d;" % (at, turn))
            assert disk.open_files <= 8
    for at, file in enumerate(files):
        assert file.pread(100, 0) == b"".join(b"%d:%d;" % (at, turn) for turn in range(3))
        assert file.size() == len(file.pread(100, 0))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 8
    for file in files:
        file.close()
    assert disk.open_files == 0
    assert files[0].pread(2, 0) == b"0:"


@pytest.mark.parametrize(
    ("allowed", "bound"), [(1024, 512), (8, 16), (100_000, 16_384), (resource.RLIM_INFINITY, 16_384)]
)
def test_half_of_the_descriptors_that_are_allowed_are_for_logs(monkeypatch, allowed: int, bound: int):
    """The other half is for clients; and there is an end to it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (allowed, allowed))
    assert RealDisk().max_open == bound


def test_threads_never_get_a_closed_or_foreign_descriptor(tmp_path):
    """Appends in one thread and syncs and reads in others, with constant eviction, mix nothing up."""
    disk = RealDisk(max_open=4)
    files = [disk.open(str(tmp_path / f"{at}"), create=True) for at in range(16)]
    stop = threading.Event()
    problems: list[BaseException] = []

    def watch(step: int) -> None:
        at = 0
        while not stop.is_set():
            file = files[at % 16]
            try:
                file.sync()
                data = file.pread(1 << 20, 0)
                assert data == bytes((files.index(file),)) * len(data)
            except BaseException as problem:
                problems.append(problem)
                return
            at += step

    threads = [threading.Thread(target=watch, args=(step,)) for step in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        for at, file in enumerate(files):
            file.append(bytes((at,)) * 10)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert all(file.size() == 1000 for file in files)
    assert disk.open_files <= 4 + 4


def test_a_failed_sync_at_eviction_is_raised_at_the_next_use(tmp_path, monkeypatch):
    """A file that lost its descriptor with bytes that could not be synced does not pretend otherwise."""
    disk = RealDisk(max_open=1)
    first = disk.open(str(tmp_path / "first"), create=True)
    first.append(b"x")

    def broken(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    for name in ("second", "third", "fourth"):
        disk.open(str(tmp_path / name), create=True)
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output"):
        first.sync()
    with pytest.raises(OSError, match="Input/output"):
        first.append(b"y")


def test_a_small_file_is_replaced_whole(tmp_path):
    """The new content or the old one, never a mixture, and no draft stays."""
    disk = RealDisk()
    path = str(tmp_path / "f")
    replace(disk, path, b"one")
    (tmp_path / "f.tmp").write_bytes(b"left over by a crash")
    replace(disk, path, b"two")
    assert disk.read(path) == b"two"
    assert disk.listdir(str(tmp_path)) == ["f"]


def test_a_missing_file_is_reported_as_missing(tmp_path):
    """Opening without `create` makes nothing."""
    with pytest.raises(FileNotFoundError):
        RealDisk().open(str(tmp_path / "nothing"))
    assert list(tmp_path.iterdir()) == []
