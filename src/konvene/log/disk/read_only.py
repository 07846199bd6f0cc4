"""A read-only `Disk` for tools that inspect logs.

Tools inspect logs of running brokers, of other brokers, and on read-only media. `RealDisk` opens each log for
writing; this disk never does, takes no lock, and rejects every modification with EROFS, as a read-only file
system does.
"""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from konvene.codec.compression import Buffer
from konvene.log.disk.files import LocalReads, Lock


class ReadOnlyDisk(LocalReads):
    """A `Disk` for reading. Modifications raise `OSError`."""

    def __repr__(self) -> str:
        return "ReadOnlyDisk()"

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        if create:
            _refuse(path)
        return ReadOnlyFile(path)

    def mkdir(self, path: str) -> None:
        _refuse(path)

    def rmdir(self, path: str) -> None:
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        _refuse(source)

    def remove(self, path: str) -> None:
        _refuse(path)

    def link(self, source: str, target: str) -> None:
        _refuse(target)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        _refuse(path)

    def sync_directory(self, path: str) -> None:
        _refuse(path)

    def settle(self, path: str) -> bool:
        _refuse(path)

    def lock(self, path: str) -> Lock:
        _refuse(path)


class ReadOnlyFile:
    """A file opened for reading; modifications raise `OSError`."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __repr__(self) -> str:
        return f"<{self.path} {'open' if self._fd >= 0 else 'closed'}, read-only>"

    def pread(self, size: int, position: int) -> bytes:
        parts = []
        while size:
            data = os.pread(self._fd, size, position)
            if not data:
                break
            parts.append(data)
            size, position = size - len(data), position + len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def append(self, data: Buffer) -> None:
        _refuse(self.path)

    def truncate(self, size: int) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)

    def begin_sync(self) -> int | None:
        _refuse(self.path)

    def end_sync(self) -> None:
        """Do nothing: `begin_sync` always fails."""


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
