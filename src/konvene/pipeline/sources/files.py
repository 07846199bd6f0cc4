"""Finds logs below given paths: the partitions and the copies of each.

A path may be a segment, a partition directory, a broker's data directory (konvene's or Kafka's), or a
directory of these, a few levels up. Directory names identify the partition; `meta.properties` beside them
identifies the cluster. A file that is named twice counts once. Directories of one partition in several places
are copies: replicas, or backups of different days.

Nothing here opens a log for writing or takes its lock. A broker may be writing, and its cleaner and retention
may delete files meanwhile: sizes are taken once, and readers must handle deleted files.

A directory of node -1 is cleaned by no broker: an archive of finished segments, or the spool of a live
cluster. Its copies come first in the result, since others may have lost records. But its files are listed
after those of the brokers: a segment that a broker replaced in between is in the archive by then.

Partitions that are being deleted (`-delete`), not yet in use (`-future`) or disowned (`-stray`) are skipped.
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

__all__ = ["Copy", "Found", "NotALog", "Partition", "Segment", "find", "topic_of"]

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_LEAVING = re.compile(r".*\.[0-9a-zA-Z]+-(delete|future|stray)\Z")
_SEGMENT = re.compile(r"([0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint\Z")
NO_BROKER = -1
"""Node id of a directory that belongs to no broker."""
MAX_DEPTH = 6
"""Number of directory levels that are searched."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A partition of a topic of a cluster, of whose log there may be several copies."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"{self.cluster}/{name}" if self.cluster else name


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A segment file, with its size when it was found."""

    base_offset: int
    path: str
    size: int
    inode: int = 0
    """Identifies the file: the cleaner may put another one under its name."""
    kept: bool = False
    """Whether it is in a directory that no broker cleans."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A directory with a partition's log, or part of it."""

    of: Partition
    path: str
    segments: tuple[Segment, ...]
    topic_id: str | None = None
    """The topic id in `partition.metadata`, in Kafka's text form."""
    snapshots: tuple[Segment, ...] = ()
    """Snapshots of the cluster metadata log, oldest first."""
    kept: bool = False


@dataclass(slots=True)
class Found:
    """The logs found below some paths, ordered by cluster, topic and partition."""

    copies: list[Copy] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{len(self.copies)} copies of {len(self.partitions())} partitions>"

    def partitions(self) -> dict[Partition, list[Copy]]:
        by_partition: dict[Partition, list[Copy]] = {}
        for copy in self.copies:
            by_partition.setdefault(copy.of, []).append(copy)
        return by_partition


def find(paths: Iterable[str | Path], cluster: str = "") -> Found:
    """Return every partition below `paths`; `cluster` names the cluster of directories without
    `meta.properties`.

    Raises `NotALog` for a path without a log below it, FileNotFoundError if it does not exist."""
    folders: dict[str, set[str]] = {}
    again: list[str] = []
    for given in paths:
        path = os.path.abspath(given)
        if os.path.isdir(path):
            found = list(_folders(path, MAX_DEPTH))
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
        found = [os.path.realpath(folder) for folder in _folders(path, MAX_DEPTH)]
        homes = _kept_homes(found)
        for folder in found:
            if os.path.dirname(folder) in homes:
                folders.setdefault(folder, set()).update(_names(folder))
    copies += [_copy(folder, names, cluster, kept=True) for folder, names in folders.items()]
    return Found(sorted(copies, key=lambda copy: (copy.of, not copy.kept, copy.path)))


def topic_of(path: str) -> str | None:
    """Return the topic of a segment or of a partition directory; None for other paths.

    A directory is that of a partition by its name and contents: data directories may be called `kafka-0`."""
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    if _SEGMENT.match(name):
        match = _PARTITION.match(os.path.basename(folder))
    else:
        match = _PARTITION.match(name) if os.path.isdir(path) and _is_partition(path) else None
    return match[1] if match is not None else None


def _is_partition(path: str) -> bool:
    return bool(_names(path)) or os.path.exists(f"{path}/{TOPIC_ID_NAME}")


def _folders(path: str, deep: int) -> Iterator[str]:
    """Yield the partition directories at `path`, and at most `deep` levels below."""
    name = os.path.basename(path)
    if _LEAVING.match(name):
        return
    if _PARTITION.match(name) and _is_partition(path):
        yield path
        return
    if _names(path):
        raise NotALog(f"{path} has segments, but its name is not that of a partition, such as topic-0")
    if not deep:
        return
    with os.scandir(path) as entries:
        below = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for each in below:
        yield from _folders(os.path.join(path, each), deep - 1)


def _names(folder: str) -> list[str]:
    """Return the names of the segments and snapshots in a partition directory."""
    return [name for name in os.listdir(folder) if _SEGMENT.match(name) or _SNAPSHOT.match(name)]


def _copy(folder: str, names: set[str], cluster: str, *, kept: bool = False) -> Copy:
    match = _PARTITION.match(os.path.basename(folder))
    if match is None:
        raise NotALog(f"{folder} has segments, but its name is not that of a partition, such as topic-0")
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
    """Return those parents of these directories that belong to no broker (node id -1)."""
    homes = {os.path.dirname(folder) for folder in folders}
    return {home for home in homes if (whose := _identity(home)) is not None and whose.node_id == NO_BROKER}


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
