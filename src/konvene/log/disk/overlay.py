"""A copy-on-write disk: writes stay in memory, over files that are only read.

For dry runs such as `konvene log clean --dry-run`: a log is opened as usual, which recovers it and rebuilds
indexes, without changing a byte on disk. A broker may go on writing to the files of the disk below: here a
file keeps the length that it had at its first use, and an opened file stays the same even if the broker
replaces it.

Nothing is durable: syncs do nothing, and locks exclude no other process. Folders with files cannot be
renamed.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from konvene.codec.compression import Buffer
from konvene.log.disk.files import Disk, File
from konvene.log.disk.read_only import ReadOnlyDisk

__all__ = ["OverlayDisk", "OverlayFile"]


@dataclass(slots=True, eq=False)
class _Node:
    """A file's content: the first `size` bytes of a file on the disk below, followed by `tail`."""

    below: str | None
    size: int = 0
    tail: bytearray = field(default_factory=bytearray)
    modified_ms: int = 0
    file: File | None = None

    @property
    def length(self) -> int:
        return self.size + len(self.tail)


class NoLock:
    """A lock without effect: none is needed, because the disk below is not modified."""

    def release(self) -> None:
        """Do nothing."""


class OverlayDisk:
    """A copy-on-write `Disk`: keeps all writes in memory, over a disk that it only reads."""

    def __init__(self, below: Disk | None = None) -> None:
        self._below: Disk = ReadOnlyDisk() if below is None else below
        self._nodes: dict[str, _Node | None] = {}
        self._folders: set[str] = set()

    def __repr__(self) -> str:
        return f"OverlayDisk({len(self._nodes)} files over {self._below!r})"

    def open(self, path: str, *, create: bool = False) -> OverlayFile:
        if create and not self.exists(path):
            self._nodes[path] = _Node(None)
        return OverlayFile(self, path, self._node(path))

    def read(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def exists(self, path: str) -> bool:
        if path in self._nodes:
            return self._nodes[path] is not None
        return path in self._folders or self._below.exists(path)

    def size(self, path: str) -> int:
        return self._node(path).length

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def stamp(self, path: str) -> tuple[int, int]:
        node = self._node(path)
        return node.length, node.modified_ms * 1_000_000

    def listdir(self, path: str) -> list[str]:
        names = set(self._below.listdir(path)) if self._below.exists(path) else set()
        for each, node in self._nodes.items():
            folder, _, name = each.rpartition("/")
            if folder == path:
                names = names - {name} if node is None else names | {name}
        return sorted(names | set(self.folders(path)))

    def folders(self, path: str) -> list[str]:
        found = set(self._below.folders(path)) if self._below.exists(path) else set()
        return sorted(found | {f.rpartition("/")[2] for f in self._folders if f.rpartition("/")[0] == path})

    def is_directory(self, path: str) -> bool:
        return path in self._folders or self._below.is_directory(path)

    def mkdir(self, path: str) -> None:
        while path and not self.exists(path):
            self._folders.add(path)
            path = path.rpartition("/")[0]

    def rmdir(self, path: str) -> None:
        self._refuse_folder(path)

    def rename(self, source: str, target: str) -> None:
        if self.is_directory(source):
            self._refuse_folder(source)
        self._nodes[target] = self._node(source)
        self._nodes[source] = None

    def remove(self, path: str) -> None:
        self._node(path)
        self._nodes[path] = None

    def link(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._nodes[target] = self._node(source)

    def sync_directory(self, path: str) -> None:
        """Do nothing: writes stay in memory."""

    def settle(self, path: str) -> bool:
        return True

    def lock(self, path: str) -> NoLock:
        return NoLock()

    def open_below(self, path: str) -> File:
        """Open a file on the disk below."""
        return self._below.open(path)

    def _node(self, path: str) -> _Node:
        if path not in self._nodes:
            size, modified_ms = self._below.size(path), self._below.modified_ms(path)
            self._nodes[path] = _Node(path, size, modified_ms=modified_ms)
        node = self._nodes[path]
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    @staticmethod
    def _refuse_folder(path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class OverlayFile:
    """One file of an `OverlayDisk`."""

    __slots__ = ("_disk", "_node", "path")

    def __init__(self, disk: OverlayDisk, path: str, node: _Node) -> None:
        self._disk = disk
        self._node = node
        self.path = path

    def __repr__(self) -> str:
        return f"<{self.path}, {len(self._node.tail)} bytes over {self._node.size}>"

    def append(self, data: Buffer) -> None:
        self._node.tail += data

    def pread(self, size: int, position: int) -> bytes:
        node, found = self._node, b""
        if position < node.size and node.below is not None:
            if node.file is None:
                node.file = self._disk.open_below(node.below)
            found = node.file.pread(min(size, node.size - position), position)
        if position + size > node.size:
            begin = max(0, position - node.size)
            found += bytes(node.tail[begin : position + size - node.size])
        return found

    def truncate(self, size: int) -> None:
        node = self._node
        del node.tail[max(0, size - node.size) :]
        node.size = min(node.size, size)

    def sync(self) -> None:
        """Do nothing: writes stay in memory."""

    def begin_sync(self) -> int | None:
        """Return no descriptor: writes stay in memory."""

    def end_sync(self) -> None:
        """Do nothing: `begin_sync` returns no descriptor."""

    def size(self) -> int:
        return self._node.length

    def close(self) -> None:
        node = self._node
        if node.file is not None:
            node.file.close()
            node.file = None
