"""Finds logs among whatever paths somebody has: which partitions there are, in how many copies.

A path may be a segment's file, a partition's folder, a broker's data directory (ours or Kafka's), or a
directory of such, as many levels up as are usual. What belongs to which partition is told by the names of the
folders; to which cluster, by `meta.properties` beside them. The same file named twice counts once. Folders of
one partition in several places are copies of it: replicas, or backups of different days.

Nothing here opens a log for writing or takes its lock. A broker may be writing, and its cleaner and its
retention may take files away meanwhile: sizes are taken once, and who reads has to bear that a file is gone.

A directory of node -1 is nobody's to clean: an archive of finished segments, or what was read of a live
cluster. Its copies come first, since others may have lost what they have; and they are looked at last, since
what a broker replaces while others are looked at was put there before.

Partitions on their way out (`-delete`) or not yet in (`-future`) and those that a broker disowns (`-stray`)
are passed over.
"""

# Paths are text here, as they are in rows of tables:
# ruff: noqa: PTH100, PTH112, PTH116, PTH119, PTH120, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from konvene.codec.errors import Malformed
from konvene.log.directory import META_NAME, TOPIC_ID_NAME, Identity
from konvene.log.inspect.dump import NotALog

__all__ = ["Copy", "Found", "NotALog", "Partition", "Segment", "find"]

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_LEAVING = re.compile(r".*\.[0-9a-zA-Z]+-(delete|future|stray)\Z")
_SEGMENT = re.compile(r"([0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint\Z")
NOBODY = -1
"""The node of a directory that no broker has."""
DEEPEST = 6
"""So many levels below a given directory are looked through."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of one cluster, however many copies of it there are."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"{self.cluster}/{name}" if self.cluster else name


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A segment's file, as large as it was when it was found."""

    base_offset: int
    path: str
    size: int
    inode: int = 0
    """Whether it is still the same file: a cleaner puts another one under its name."""
    kept: bool = False
    """Whether it is where nobody cleans."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A folder with (a part of) a partition's log."""

    of: Partition
    path: str
    segments: tuple[Segment, ...]
    topic_id: str | None = None
    """What `partition.metadata` says, in Kafka's text form."""
    snapshots: tuple[Segment, ...] = ()
    """Of the cluster's metadata: what its log was folded into, oldest first."""
    kept: bool = False


@dataclass(slots=True)
class Found:
    """What the paths hold, in the order of clusters, topics and partitions."""

    copies: list[Copy] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{len(self.copies)} copies of {len(self.partitions())} partitions>"

    def partitions(self) -> dict[Partition, list[Copy]]:
        by_partition: dict[Partition, list[Copy]] = {}
        for copy in self.copies:
            by_partition.setdefault(copy.of, []).append(copy)
        return by_partition


def find(paths: Iterable[str | Path], cluster: str = "") -> Found:
    """Every partition below `paths`. `cluster` names the one of folders that no `meta.properties` tells of.

    `NotALog` for a path below which there is no log; FileNotFoundError where nothing is there."""
    folders: dict[str, set[str]] = {}
    again: list[str] = []
    for given in paths:
        path = os.path.abspath(given)
        if os.path.isdir(path):
            found = list(_folders(path, DEEPEST))
            kept = bool(_kept_homes([path + "/", *found]))
            if not found and not kept:
                raise NotALog(f"{path}: no partition's folder (topic-0) is there or below")
            again += [path] if kept else []
            for folder in found:
                folders.setdefault(os.path.realpath(folder), set()).update(_names(folder))
        else:
            os.stat(path)
            folder, name = os.path.split(path)
            if _SEGMENT.match(name) is None and _SNAPSHOT.match(name) is None:
                raise NotALog(f"{path} is no segment of a log (20 digits and .log)")
            folders.setdefault(os.path.realpath(folder), set()).add(name)
    homes = _kept_homes(folders)
    of_brokers = [folder for folder in folders if os.path.dirname(folder) not in homes]
    copies = [_copy(folder, folders.pop(folder), cluster) for folder in of_brokers]
    for path in again:
        found = [os.path.realpath(folder) for folder in _folders(path, DEEPEST)]
        homes = _kept_homes(found)
        for folder in found:
            if os.path.dirname(folder) in homes:
                folders.setdefault(folder, set()).update(_names(folder))
    copies += [_copy(folder, names, cluster, kept=True) for folder, names in folders.items()]
    return Found(sorted(copies, key=lambda copy: (copy.of, not copy.kept, copy.path)))


def _folders(path: str, deep: int) -> Iterator[str]:
    """The partitions' folders at `path` and below it."""
    name = os.path.basename(path)
    if _LEAVING.match(name):
        return
    if _PARTITION.match(name) and (_names(path) or os.path.exists(f"{path}/{TOPIC_ID_NAME}")):
        yield path
        return
    if _names(path):
        raise NotALog(f"{path} has segments, but its name does not say of which partition (topic-0)")
    if not deep:
        return
    with os.scandir(path) as entries:
        below = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for each in below:
        yield from _folders(os.path.join(path, each), deep - 1)


def _names(folder: str) -> list[str]:
    """Files of a folder that are parts of a log."""
    return [name for name in os.listdir(folder) if _SEGMENT.match(name) or _SNAPSHOT.match(name)]


def _copy(folder: str, names: set[str], cluster: str, *, kept: bool = False) -> Copy:
    match = _PARTITION.match(os.path.basename(folder))
    if match is None:
        raise NotALog(f"{folder} has segments, but its name does not say of which partition (topic-0)")
    segments: list[Segment] = []
    snapshots: list[Segment] = []
    for name in sorted(names):
        try:
            stat = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        kind = snapshots if name.endswith(".checkpoint") else segments
        kind.append(Segment(int(name[:20]), os.path.join(folder, name), stat.st_size, stat.st_ino, kept))
    whose = _identity(os.path.dirname(folder))
    of = Partition((whose and whose.cluster_id) or cluster, match[1], int(match[2]))
    return Copy(of, folder, tuple(sorted(segments)), _topic_id(folder), tuple(sorted(snapshots)), kept)


def _kept_homes(folders: Iterable[str]) -> set[str]:
    """The directories, of those that folders are in, that no broker has."""
    homes = {os.path.dirname(folder) for folder in folders}
    return {home for home in homes if (whose := _identity(home)) is not None and whose.node_id == NOBODY}


def _identity(directory: str) -> Identity | None:
    try:
        return Identity.decode(Path(directory, META_NAME).read_bytes())
    except (FileNotFoundError, Malformed):
        return None


def _topic_id(folder: str) -> str | None:
    try:
        text = Path(folder, TOPIC_ID_NAME).read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return rows["topic_id"].strip() if "topic_id" in rows else None
