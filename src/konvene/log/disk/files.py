"""The file system: the interface `Disk` that all storage code uses, and its real implementation.

The simulator substitutes a faulty `Disk`. No byte is ever overwritten: a file grows at its end, is truncated,
or is replaced as a whole by a rename. Errors are plain `OSError`; callers decide what to do, nothing here
retries.

`RealDisk` keeps a bounded number of files open, so that ten thousand partitions work with a limit of a
thousand descriptors. A file in use by any thread is pinned and never closed. Before an unsynced file is
closed for lack of descriptors it is synced; a failure of that sync is stored and raised at the file's next
use.
"""

# Paths are strings on every disk:
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
    """A file that grows at its end and is read at any position."""

    path: str

    def append(self, data: Buffer) -> None:
        """Append all of `data`. After an OSError a prefix of it may be in the file."""

    def pread(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self) -> None:
        """Make every byte appended before durable. May be called from another thread."""

    def begin_sync(self) -> int | None:
        """Return a descriptor for the caller to sync, open until `end_sync`.

        None if there is no descriptor, as for a file in memory: then only `sync` can be used.
        """

    def end_sync(self) -> None:
        """End the use of the descriptor of `begin_sync`: from now on it may be closed."""

    def size(self) -> int:
        """Return the size in bytes."""

    def close(self) -> None:
        """Close the descriptor; the next use of the file opens it again."""


class Lock(Protocol):
    """A lock that this process has taken."""

    def release(self) -> None:
        """Release the lock."""


class Disk(Protocol):
    """A file system, addressed by path. A missing file raises FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; with `create`, create it empty if it is missing."""

    def read(self, path: str) -> bytes:
        """Return a small file's content."""

    def exists(self, path: str) -> bool:
        """Return True if a file or directory exists."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time in milliseconds since the epoch."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set a file's modification time."""

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size and the modification time (ns), which change if the file is modified."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def folders(self, path: str) -> list[str]:
        """Return the names of the subdirectories, sorted."""

    def is_directory(self, path: str) -> bool:
        """Return True if `path` is a directory."""

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing an existing file `target`."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def link(self, source: str, target: str) -> None:
        """Create a hard link. Raises `FileExistsError` if `target` exists, OSError if links are not
        possible."""

    def sync_directory(self, path: str) -> None:
        """Make all creations, renames and removals in this directory durable."""

    def settle(self, path: str) -> bool:
        """Sync the whole file system of `path` (syncfs); return False if that is not supported or fails.

        For many files this is much faster than syncing each.
        """

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file. Raises `DirectoryLocked` if another process holds it."""


def replace(disk: Disk, path: str, data: bytes, *, durably: bool = True) -> None:
    """Replace a small file atomically: write a temporary file, sync, rename, sync the directory.

    With `durably=False` nothing is synced, so that a power cut may lose the file.
    """
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
    """Create a directory and its missing parents, durably."""
    missing = []
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for name in reversed(missing):
        disk.mkdir(name)
        disk.sync_directory(name.rpartition("/")[0] or "/")


MOST_OPEN = 16_384
"""Maximum number of open log files; one that is closed with unsynced bytes has to be synced."""


def _find_syncfs() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        first, second = (int(part) for part in platform.release().split(".")[:2])
        if platform.system() == "Linux" and (first, second) >= (5, 8):
            found: Callable[[int], int] = ctypes.CDLL(None).syncfs
            return found
    return None


_syncfs = _find_syncfs()


class LocalReads:
    """Base of `RealDisk` and `ReadOnlyDisk`: the reading methods of `Disk`, for files on disk."""

    __slots__ = ()

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

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


class RealDisk(LocalReads):
    """The operating system's files, with at most `max_open` log files open at a time."""

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
        """Number of open descriptors."""
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

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

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
        """Call syncfs on Linux 5.8 or later, which reports failures.

        A failure may belong to any file on the file system, so it only returns False; the caller then syncs
        file by file and gets its own errors.
        """
        if _syncfs is None:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _syncfs(fd) == 0
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        """Take a flock, which excludes other processes of konvene, and a lockf, which excludes Kafka."""
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
        """Register an open file and close those used least recently above the limit.

        The caller holds `_guard`.
        """
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
                oldest.close_descriptor()


def _holder(fd: int) -> str:
    """Describe the process that holds the lock, for an error message; Linux reports its id."""
    if platform.system() == "Linux":
        query = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        with contextlib.suppress(OSError, struct.error):
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, query))
            if kind != fcntl.F_UNLCK and pid > 0:
                return f"another process, {pid}{_name_of(pid)}"
    return "another process"


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        return f" ({' '.join(words).strip()[:100]})"
    return ""


class RealLock:
    """The two locks of `RealDisk.lock`, held until `release` or the end of the process."""

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

    def close_descriptor(self) -> None:
        """Sync if needed and close the descriptor; a failed sync is raised at the next use of the file.

        The caller holds the disk's `_guard`.
        """
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
