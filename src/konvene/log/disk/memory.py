"""An in-memory disk with injected faults and power cuts.

It implements `files.Disk` with the weakest guarantees that a machine gives after a power cut. Of a file's
operations, all up to its last `sync` survive, and any number of the later ones, in order; the last append
that survives may be torn anywhere. Of the names created, renamed or removed in a directory, all up to its
last sync survive, and any number of the later ones, in order. `crash` returns the disk as it is found after a
power cut; its argument decides how much of the unsynced state survives.

Faults: `fail[n] = errno` makes the n-th operation fail with that error (an append then writes half of its
bytes); `cut_power_at = n` makes it raise `PowerCut`.
"""

# Paths are strings on every disk:
# ruff: noqa: PTH119, PTH120

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from konvene.codec.compression import Buffer
from konvene.log.errors import DirectoryLocked

ChooseSurviving = Callable[[int], int]


class PowerCut(BaseException):
    """The simulated machine lost power: a test continues with the disk that `MemoryDisk.crash` returns."""


class _Inode:
    __slots__ = ("changed", "data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        #: Logical time of the last change.
        self.changed = 0
        #: Modification time, if it was set.
        self.modified_ms: int | None = None
        self.durable = bytearray()
        #: Changes since the last sync: appended bytes, or the size of a truncation.
        self.pending: list[bytes | int] = []

    def make_durable(self) -> None:
        if any(isinstance(change, int) for change in self.pending):
            self.durable = bytearray(self.data)
        else:
            for change in self.pending:
                self.durable += change  # type: ignore[arg-type]
        self.pending = []


class MemoryDisk:
    """A `Disk` in memory, with injected faults and simulated power cuts (see the module docstring)."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail: dict[int, int] = {}
        self.cut_power_at: int | None = None
        self.operations: list[tuple[str, str]] = []
        self.now_ms = 0
        self._names: dict[str, _Inode | None] = {"/": None}
        self._durable_names: dict[str, _Inode | None] = {"/": None}
        #: By directory, name changes since its last sync: (name, inode), False for a removal.
        self._pending: dict[str, list[list[tuple[str, _Inode | bool | None]]]] = {}
        self._locks: set[str] = set()
        self._changes: dict[str, int] = {}
        #: Logical clock: operations of this disk and of the disks that it was copied from.
        self._clock = 0
        self.settles = True
        """True if the disk supports `settle`."""

    def __repr__(self) -> str:
        return f"MemoryDisk({len(self._names)} names, {self.calls} operations)"

    def blank(self) -> MemoryDisk:
        """Return an empty disk of the same type."""
        return MemoryDisk()

    def crash(self, choose: ChooseSurviving = lambda _count: 0) -> MemoryDisk:
        """Return the disk as it is found after a power cut.

        `choose` is called for each choice between n outcomes and returns a number from 0 to n - 1: how many
        of n - 1 unsynced operations or bytes survive.
        """
        found = self.blank()
        found.now_ms = self.now_ms
        names = dict(self._durable_names)
        for directory in sorted(self._pending):
            steps = self._pending[directory]
            for step in steps[: choose(len(steps) + 1)]:
                _apply(names, step)
        kept: dict[int, _Inode] = {}
        for name in sorted(names):
            inode = names[name]
            if os.path.dirname(name) not in names:
                continue
            if inode is None:
                found._names[name] = None
                continue
            if id(inode) not in kept:
                kept[id(inode)] = _survivor(inode, choose)
            found._names[name] = kept[id(inode)]
        found._durable_names = dict(found._names)
        found._continue(self)
        return found

    def copy(self) -> MemoryDisk:
        """Return a copy with everything durable, as after a crash of the process without a power cut."""
        found = self.blank()
        found.now_ms = self.now_ms
        for name, inode in self._names.items():
            if inode is None:
                found._names[name] = None
            else:
                twin = _Inode()
                twin.data = bytearray(inode.data)
                twin.durable = bytearray(inode.data)
                twin.changed, twin.modified_ms = inode.changed, inode.modified_ms
                found._names[name] = twin
        found._durable_names = dict(found._names)
        found._continue(self)
        return found

    def _continue(self, before: MemoryDisk) -> None:
        """Take over the logical clock of the disk `before`, so that files keep their change times."""
        self._changes = dict(before._changes)
        self._clock = before._clock
        self.settles = before.settles

    # Disk ------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._operation("open", path)
        if path not in self._names:
            if not create:
                raise FileNotFoundError(path)
            self._parent(path)
            inode = _Inode()
            self._change(path, [(path, inode)])
        found = self._names[path]
        if found is None:
            raise IsADirectoryError(path)
        return MemoryFile(self, path, found)

    def read(self, path: str) -> bytes:
        self._operation("read", path)
        return bytes(self._inode(path).data)

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        modified_ms = self._inode(path).modified_ms
        return self.now_ms if modified_ms is None else modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._operation("set_modified_ms", path)
        self._inode(path).modified_ms = modified_ms

    def stamp(self, path: str) -> tuple[int, int]:
        if path in self._names and self._names[path] is None:
            return 0, self._changes.get(path, 0)
        inode = self._inode(path)
        return len(inode.data), inode.changed

    def folders(self, path: str) -> list[str]:
        return [name for name in self.listdir(path) if self.is_directory(f"{path}/{name}")]

    def listdir(self, path: str) -> list[str]:
        self._operation("listdir", path)
        if path not in self._names:
            raise FileNotFoundError(path)
        return sorted(
            os.path.basename(name) for name in self._names if name != path and _parent(name) == path
        )

    def is_directory(self, path: str) -> bool:
        return path in self._names and self._names[path] is None

    def mkdir(self, path: str) -> None:
        self._operation("mkdir", path)
        missing = []
        while path not in self._names:
            missing.append(path)
            path = _parent(path)
        for name in reversed(missing):
            self._change(name, [(name, None)])

    def rmdir(self, path: str) -> None:
        self._operation("rmdir", path)
        if any(_parent(name) == path and name != path for name in self._names):
            raise OSError(errno.ENOTEMPTY, "the directory is not empty", path)
        self._change(path, [(path, False)])

    def rename(self, source: str, target: str) -> None:
        self._operation("rename", source)
        if source not in self._names:
            raise FileNotFoundError(source)
        step: list[tuple[str, _Inode | bool | None]] = [(source, False), (target, self._names[source])]
        inside = [name for name in self._names if name.startswith(source + "/")]
        for name in inside:
            step += [(name, False), (target + name[len(source) :], self._names[name])]
        durable = [name for name in self._durable_names if name.startswith(source + "/")]
        self._change(source, step)
        if durable and source in self._pending:
            self._pending[target] = self._pending.pop(source)

    def remove(self, path: str) -> None:
        self._operation("remove", path)
        self._inode(path)
        self._change(path, [(path, False)])

    def link(self, source: str, target: str) -> None:
        self._operation("link", source)
        if target in self._names:
            raise FileExistsError(target)
        self._parent(target)
        self._change(target, [(target, self._inode(source))])

    def sync_directory(self, path: str) -> None:
        self._operation("sync_directory", path)
        for step in self._pending.pop(path, []):
            _apply(self._durable_names, step)

    def settle(self, path: str) -> bool:
        if not self.settles:
            return False
        try:
            self._operation("settle", path)
        except OSError:
            return False
        for directory in sorted(self._pending):
            for step in self._pending.pop(directory):
                _apply(self._durable_names, step)
        for inode in self._names.values():
            if inode is not None:
                inode.make_durable()
        return True

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise DirectoryLocked(f"{path} is held")
        self._locks.add(path)
        return MemoryLock(self, path)

    def _operation(self, kind: str, path: str) -> bool:
        """Count an operation, and raise the fault that `fail` or `cut_power_at` plans for it.

        `kind` is the operation's name. A planned failure of an "append" is not raised: True is returned, and
        the caller fails half-way.
        """
        self.calls += 1
        self._clock += 1
        self.operations.append((kind, path))
        if self.calls == self.cut_power_at:
            raise PowerCut(f"operation {self.calls}: {kind} {path}")
        code = self.fail.get(self.calls)
        if code is None:
            return False
        if kind == "append":
            return True
        raise OSError(code, os.strerror(code), path)

    def _change(self, path: str, step: list[tuple[str, _Inode | bool | None]]) -> None:
        _apply(self._names, step)
        self._pending.setdefault(_parent(path), []).append(step)
        for name, _ in step:
            self._changes[_parent(name)] = self._clock

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode

    def _parent(self, path: str) -> None:
        if _parent(path) not in self._names:
            raise FileNotFoundError(_parent(path))


class MemoryLock:
    """A lock on a path of a `MemoryDisk`; until its release no other one can be taken there."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk._locks.discard(self._path)


class MemoryFile:
    """One open file of a `MemoryDisk`."""

    __slots__ = ("_disk", "_inode", "path")

    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path

    def append(self, data: Buffer) -> None:
        half = self._disk._operation("append", self.path)
        kept = bytes(data[: len(data) // 2] if half else data)
        self._inode.data += kept
        self._inode.modified_ms = None
        self._inode.changed = self._disk._clock
        self._inode.pending.append(kept)
        if half:
            code = self._disk.fail[self._disk.calls]
            raise OSError(code, os.strerror(code), self.path)

    def pread(self, size: int, position: int) -> bytes:
        self._disk._operation("pread", self.path)
        return bytes(self._inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk._operation("truncate", self.path)
        del self._inode.data[size:]
        self._inode.changed = self._disk._clock
        self._inode.pending.append(size)

    def sync(self) -> None:
        self._disk._operation("sync", self.path)
        self._inode.make_durable()

    def begin_sync(self) -> int | None:
        return None

    def end_sync(self) -> None:
        """Do nothing: `begin_sync` returns no descriptor."""

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        """Do nothing: closing makes nothing durable."""


def _parent(path: str) -> str:
    """Return `os.path.dirname(path)`, faster, for a path without doubled slashes."""
    head, slash, _ = path.rpartition("/")
    return head or slash


def _apply(names: dict[str, _Inode | None], step: list[tuple[str, _Inode | bool | None]]) -> None:
    for name, inode in step:
        if inode is False:
            names.pop(name, None)
        else:
            assert inode is not True
            names[name] = inode


def _survivor(inode: _Inode, choose: ChooseSurviving) -> _Inode:
    found = _Inode()
    data = bytearray(inode.durable)
    count = choose(len(inode.pending) + 1) if inode.pending else 0
    for change in inode.pending[:count]:
        if isinstance(change, int):
            del data[change:]
        else:
            data += change
    if count < len(inode.pending):
        torn = inode.pending[count]
        if not isinstance(torn, int):
            data += torn[: choose(len(torn) + 1)]
    found.data = data
    found.durable = bytearray(data)
    found.changed, found.modified_ms = inode.changed, inode.modified_ms
    return found
