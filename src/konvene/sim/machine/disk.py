"""Simulated disk with seeded errors, and processes that are killed in the middle of an operation.

`konvene.log.disk.memory` defines what survives a crash. In addition operations fail at seeded rates (EIO on
reads, writes and syncs; ENOSPC), a failed append leaves half of its bytes, and `die_at` kills the process at
one of its operations, so that a broker may die within a step. A power cut may leave garbage in place of the
last append (`garbage`). `rot` flips a bit of durable data, which no invariant survives, but which has to be
detected.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from konvene.log.disk.memory import MemoryDisk, PowerCut

__all__ = ["DiskFaults", "SimDisk"]

READS = frozenset(("read", "pread"))
SYNCS = frozenset(("sync", "sync_directory", "settle"))
QUIET = frozenset(("listdir",))


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """Error rates of operations, from 0 to 1."""

    read: float = 0.0
    write: float = 0.0
    sync: float = 0.0
    full: float = 0.0
    """ENOSPC instead of EIO, of those writes that fail."""
    garbage: float = 0.0
    """Whether zeros or noise replace the torn end of a file after a power cut."""


SOUND = DiskFaults()


class SimDisk(MemoryDisk):
    """A disk in memory whose operations fail at the rates of `faults`, drawn from `chance`."""

    def __init__(self, chance: Random | None = None, faults: DiskFaults = SOUND) -> None:
        super().__init__()
        self.chance = chance or Random(0)
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self.clock: Callable[[], int] | None = None
        self.die_at: int | None = None
        """The process dies at this operation, counted from 1."""
        self.dies: Callable[[], None] = lambda: None
        """Called when the process dies, before anything else happens."""
        self.dead = False
        self.lying = False
        """Whether a sync failed: unsynced data may be lost although it can still be read."""

    def __repr__(self) -> str:
        return f"SimDisk({len(self._names)} names, {self.calls} operations{', dead' if self.dead else ''})"

    def blank(self) -> SimDisk:
        found = SimDisk(self.chance, self.faults)
        found.counts = self.counts
        found.clock = self.clock
        return found

    def after_kill(self) -> SimDisk:
        """Return the disk for the process that follows a killed one; this object is unusable then.

        All writes remain, and those that were not synced are still not synced."""
        found = self.blank()
        found._names, found._durable_names = self._names, self._durable_names
        found._pending = self._pending
        found._continue(self)
        self.dead = True
        return found

    # looking, which is no operation -----------------------------------------------------------

    def paths(self, folder: str) -> list[str]:
        """Return all files and directories with this path prefix."""
        return sorted(path for path in self._names if path.startswith(folder))

    def peek(self, path: str, at: int = 0) -> bytes:
        """Return a file's bytes from position `at` on; this is no disk operation, so it neither fails nor is
        counted."""
        return bytes(self._inode(path).data[at:])

    def file(self, path: str) -> object:
        """Return an object that identifies the file at this path, like an inode: it is another one after
        another file was renamed to the path."""
        return self._inode(path)

    # endings ----------------------------------------------------------------------------------

    def cut_power(self) -> SimDisk:
        """Return the disk as a power cut leaves it: all synced writes, and a random part of the writes that
        were not synced."""
        chance = self.chance
        lucky = chance.random() < 0.7
        found = self.crash((lambda count: chance.randrange(count)) if lucky else lambda _count: 0)
        assert isinstance(found, SimDisk)
        self._spoil(found)
        self.dead = True
        return found

    def _spoil(self, found: SimDisk) -> None:
        """At the rate `garbage`, replace the end of a file's torn last append by zeros or random bytes.

        `found` is the disk after a power cut, which this changes."""
        if not self.faults.garbage:
            return
        for path in sorted(found._names):
            before, inode = self._names.get(path), found._names[path]
            if before is None or inode is None or len(before.pending) != 1:
                continue
            kept = len(inode.data) - len(before.durable)
            if kept > 0 and self.chance.random() < self.faults.garbage:
                at = self.chance.randrange(len(before.durable), len(inode.data))
                lost = len(inode.data) - at
                inode.data[at:] = self.chance.choice((bytes(lost), self.chance.randbytes(lost)))
                inode.durable = bytearray(inode.data)
                self.counts["garbage"] += 1

    def rot(self, path: str, position: int) -> None:
        """Flip a random bit of the byte at `position` of a file, as a decaying medium does."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << self.chance.randrange(8)
        inode.durable = bytearray(inode.data)
        inode.pending = []
        self.counts["rot"] += 1

    def modified_ms(self, path: str) -> int:
        if self.clock is not None:
            self.now_ms = self.clock()
        return super().modified_ms(path)

    def _operation(self, kind: str, path: str) -> bool:
        if self.dead:
            raise PowerCut(f"{kind} {path}, after the end")
        self.calls += 1
        self._clock += 1
        if self.calls == self.die_at:
            self.dead = True
            self.dies()
            raise PowerCut(f"operation {self.calls}: {kind} {path}")
        rate = self._rate(kind)
        if not rate or self.chance.random() >= rate:
            return False
        code = errno.EIO
        if kind not in READS and kind not in SYNCS and self.chance.random() < self.faults.full:
            code = errno.ENOSPC
        self.counts[f"{errno.errorcode[code]} {kind}"] += 1
        if kind in SYNCS:
            self.lying = True
        if kind == "append":
            self.fail = {self.calls: code}
            return True
        raise OSError(code, os.strerror(code), path)

    def _rate(self, kind: str) -> float:
        faults = self.faults
        if kind in QUIET:
            return 0.0
        return faults.read if kind in READS else faults.sync if kind in SYNCS else faults.write
