"""The door to the disk: the only place that opens, syncs, renames and locks.

Everything above speaks to a `Disk`, so a simulator can put a faulty one in its place. The
words are few, and what is missing is a promise: no byte is ever written in place. A file
grows at its end, is cut at its end, or is replaced whole by rename. Errors are plain
`OSError`; who gets one decides, nobody here retries.

`RealDisk` keeps a bounded number of files open, so ten thousand partitions fit under a
limit of a thousand descriptors. A file in use by any thread is pinned and never closed under
it; a file that has to give up its descriptor with bytes not yet synced is synced first,
and a failure of that sync is kept and raised at the file's own next use.
"""

# The door is made of system calls, and a path is text here, on every disk:
# ruff: noqa: PTH103, PTH105, PTH106, PTH107, PTH112, PTH116, PTH120, PTH208

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from konvene.codec.compression import Buffer
from konvene.log.errors import DirectoryLocked


class File(Protocol):
    """One file: grows at its end, is read anywhere."""

    path: str

    def append(self, data: Buffer) -> None:
        """All of `data` at the end, or OSError (and then some prefix of it may be there)."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut everything behind `size`."""

    def sync(self) -> None:
        """Return when every byte appended before is durable. May be called from another thread."""

    def begin_sync(self) -> int | None:
        """Its descriptor, open until `end_sync`, for whoever has it synced otherwise; None: it has none."""

    def end_sync(self) -> None:
        """What was begun is over."""

    def size(self) -> int:
        """Bytes in the file."""

    def close(self) -> None:
        """Give the descriptor back. The object may be used again: it opens again."""


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let another process have it."""


class Disk(Protocol):
    """Files by path. A missing one raises FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """The file at `path`; with `create`, made empty if it is not there."""

    def read(self, path: str) -> bytes:
        """A small file, whole."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def size(self, path: str) -> int:
        """Bytes of a file."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file have been written last at another time than it was."""

    def stamp(self, path: str) -> tuple[int, int]:
        """Size and time of the last change, in nanoseconds: the same again where nothing was changed."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def folders(self, path: str) -> list[str]:
        """Names of the directories in a directory, sorted."""

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory."""

    def mkdir(self, path: str) -> None:
        """Make a directory and those above it; nothing happens if it is there."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    def rename(self, source: str, target: str) -> None:
        """Move, replacing what is there."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def link(self, source: str, target: str) -> None:
        """Let a file have a second name. `FileExistsError` if that is taken, OSError where files cannot."""

    def sync_directory(self, path: str) -> None:
        """Make what was created, renamed and removed in this directory durable."""

    def settle(self, path: str) -> bool:
        """Make all that was written below `path` durable at one stroke; False where that cannot be had.

        It is for many files: then it takes a fraction of the time that a sync of each one takes."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock or raise `DirectoryLocked`."""


def replace(disk: Disk, path: str, data: bytes, *, durably: bool = True) -> None:
    """Put a whole small file in place, all or nothing: temp, sync, rename, sync the directory.

    Without the syncs where it is not to be `durably`: the caller settles it, or can do without the file."""
    draft = path + ".tmp"
    if disk.exists(draft):
        disk.remove(draft)
    file = disk.open(draft, create=True)
    try:
        file.append(data)
        if durably:
            file.sync()
    finally:
        file.close()
    disk.rename(draft, path)
    if durably:
        disk.sync_directory(os.path.dirname(path))


def make_directory(disk: Disk, path: str) -> None:
    """Make the directory and those above it, each one's name durable in its parent."""
    missing = []
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for name in reversed(missing):
        disk.mkdir(name)
        disk.sync_directory(name.rpartition("/")[0] or "/")


MOST_OPEN = 16_384
"""Log files that are kept open at most: one that is closed with bytes in it has to be synced."""


def _find_syncfs() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        first, second = (int(part) for part in platform.release().split(".")[:2])
        if platform.system() == "Linux" and (first, second) >= (5, 8):
            found: Callable[[int], int] = ctypes.CDLL(None).syncfs
            return found
    return None


_syncfs = _find_syncfs()


class RealDisk:
    """The machine's own file system, with at most `max_open` log files open at a time."""

    __slots__ = ("_guard", "_open_files", "max_open")

    def __init__(self, max_open: int | None = None) -> None:
        if max_open is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = MOST_OPEN if soft == resource.RLIM_INFINITY else min(MOST_OPEN, soft // 2)
            max_open = max(16, most)
        self.max_open = max_open
        self._guard = threading.Lock()
        self._open_files: OrderedDict[_RealFile, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"RealDisk({len(self._open_files)} of {self.max_open} files open)"

    @property
    def open_files(self) -> int:
        """How many descriptors are held."""
        return len(self._open_files)

    def open(self, path: str, *, create: bool = False) -> _RealFile:
        file = _RealFile(self, path)
        if create:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with self._guard:
                self._admit(file, fd)
        elif not os.path.exists(path):
            raise FileNotFoundError(path)
        return file

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def stamp(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def folders(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def settle(self, path: str) -> bool:
        """By syncfs, where Linux has it and says whether it failed (since 5.8).

        A failure may be anybody's on that file system, so it decides nothing: False, and who asked syncs
        file by file and hears of his own."""
        if _syncfs is None:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _syncfs(fd) == 0
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        """Both kinds of lock that Unix has: ours against each other, and the one that Kafka takes."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = _holder(fd)
            os.close(fd)
            raise DirectoryLocked(f"{path} is held by {holder}: is a broker running there?") from None
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    def _admit(self, file: _RealFile, fd: int) -> None:
        """Under the guard: note an open file, and close the least used ones above the bound."""
        file.fd = fd
        self._open_files[file] = None
        for _ in range(2 * len(self._open_files)):
            if len(self._open_files) <= self.max_open:
                return
            oldest = next(iter(self._open_files))
            if oldest is file or oldest.pins or oldest.recent:
                oldest.recent = False
                self._open_files.move_to_end(oldest)
            else:
                del self._open_files[oldest]
                oldest.give_up()


def _holder(fd: int) -> str:
    """Who has the lock, as far as the machine tells."""
    if platform.system() == "Linux":
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        with contextlib.suppress(OSError, struct.error):
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK and pid > 0:
                return f"another process, {pid}{_name_of(pid)}"
    return "another process"


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        return f" ({' '.join(words).strip()[:100]})"
    return ""


class RealLock:
    """Locks that last until it is released or the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _RealFile:
    __slots__ = ("_disk", "dirty", "failure", "fd", "path", "pins", "recent")

    def __init__(self, disk: RealDisk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.fd = -1
        self.pins = 0
        self.recent = False
        self.dirty = False
        self.failure: OSError | None = None

    def __repr__(self) -> str:
        return f"<{self.path} {'open' if self.fd >= 0 else 'closed'}>"

    def append(self, data: Buffer) -> None:
        fd = self._pin()
        try:
            self.dirty = True
            written = os.write(fd, data)
            if written != len(data):
                rest = memoryview(data)[written:]
                while rest:
                    rest = rest[os.write(fd, rest) :]
        finally:
            self._unpin()

    def pread(self, size: int, position: int) -> bytes:
        fd = self._pin()
        try:
            data = os.pread(fd, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size:
                data = os.pread(fd, size - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        finally:
            self._unpin()

    def truncate(self, size: int) -> None:
        fd = self._pin()
        try:
            self.dirty = True
            os.ftruncate(fd, size)
        finally:
            self._unpin()

    def sync(self) -> None:
        fd = self._pin()
        try:
            self.dirty = False
            os.fdatasync(fd)
        finally:
            self._unpin()

    def begin_sync(self) -> int | None:
        fd = self._pin()
        self.dirty = False
        return fd

    def end_sync(self) -> None:
        self._unpin()

    def size(self) -> int:
        return os.stat(self.path).st_size

    def close(self) -> None:
        with self._disk._guard:
            if self.fd >= 0 and not self.pins:
                del self._disk._open_files[self]
                os.close(self.fd)
                self.fd = -1

    def give_up(self) -> None:
        """Under the disk's guard: let the descriptor go without losing track of a failure."""
        if self.dirty:
            try:
                self.dirty = False
                os.fdatasync(self.fd)
            except OSError as error:
                self.failure = error
        os.close(self.fd)
        self.fd = -1

    def _pin(self) -> int:
        with self._disk._guard:
            if self.failure is not None:
                raise self.failure
            if self.fd < 0:
                self._disk._admit(self, os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
            self.pins += 1
            self.recent = True
            return self.fd

    def _unpin(self) -> None:
        with self._disk._guard:
            self.pins -= 1
