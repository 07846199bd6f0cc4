"""Finds logs among whatever paths somebody has: which partitions there are, in how many copies.

A path may be a segment's file, a partition's folder, a broker's data directory (ours or Kafka's), or a
directory of such, as many levels up as are usual. What belongs to which partition is told by the names of the
folders; to which cluster, by `meta.properties` beside them. The same file named twice counts once. Folders of
one partition in several places are copies of it: replicas, or backups of different days.

Nothing here opens a log for writing or takes its lock. A broker may be writing, and its cleaner and its
retention may take files away meanwhile: sizes are taken once, and who reads has to bear that a file is gone.
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
from konvene.log.dump import NotALog

__all__ = ["Copy", "Found", "NotALog", "Partition", "Segment", "find"]

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_LEAVING = re.compile(r".*\.[0-9a-zA-Z]+-(delete|future|stray)\Z")
_SEGMENT = re.compile(r"([0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint\Z")
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
    folders: dict[str, dict[str, str]] = {}
    for given in paths:
        path = os.path.abspath(given)
        before = len(folders)
        if os.path.isdir(path):
            for folder in _folders(path, DEEPEST):
                names = folders.setdefault(os.path.realpath(folder), {})
                names.update((name, folder) for name in _names(folder))
            if len(folders) == before and not any(True for _ in _folders(path, DEEPEST)):
                raise NotALog(f"{path}: no partition's folder (topic-0) is there or below")
        else:
            os.stat(path)
            folder, name = os.path.split(path)
            if _SEGMENT.match(name) is None and _SNAPSHOT.match(name) is None:
                raise NotALog(f"{path} is no segment of a log (20 digits and .log)")
            folders.setdefault(os.path.realpath(folder), {})[name] = folder
    copies = [_copy(folder, sorted(names), cluster) for folder, names in folders.items()]
    return Found(sorted(copies, key=lambda copy: (copy.of, copy.path)))


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


def _copy(folder: str, names: list[str], cluster: str) -> Copy:
    match = _PARTITION.match(os.path.basename(folder))
    if match is None:
        raise NotALog(f"{folder} has segments, but its name does not say of which partition (topic-0)")
    segments: list[Segment] = []
    snapshots: list[Segment] = []
    for name in names:
        try:
            stat = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        kind = snapshots if name.endswith(".checkpoint") else segments
        kind.append(Segment(int(name[:20]), os.path.join(folder, name), stat.st_size, stat.st_ino))
    of = Partition(_cluster_id(os.path.dirname(folder)) or cluster, match[1], int(match[2]))
    return Copy(of, folder, tuple(sorted(segments)), _topic_id(folder), tuple(sorted(snapshots)))


def _cluster_id(directory: str) -> str | None:
    try:
        return Identity.decode(Path(directory, META_NAME).read_bytes()).cluster_id
    except (FileNotFoundError, Malformed):
        return None


def _topic_id(folder: str) -> str | None:
    try:
        text = Path(folder, TOPIC_ID_NAME).read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return rows["topic_id"].strip() if "topic_id" in rows else None
