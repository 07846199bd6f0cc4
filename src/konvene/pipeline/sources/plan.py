"""Plans what to read, and in which parts: of files and of a live cluster alike.

A place is a partition with the offsets that it has; a slice is a part of one that a task reads, from a file
or over Fetch. Both are values that can be sent to workers. If there are several copies of a partition
(replicas, backups), each offset is read from one copy only: the one that continues furthest without a hole,
preferring an archive to a broker's own log, which may have been compacted.

The sizes of batches of a live cluster are not known before they are fetched; so only record limits apply
there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.pipeline.ingest import splits
from konvene.pipeline.ingest.chunk import READ_WHOLE
from konvene.pipeline.ingest.splits import Extent, Split
from konvene.pipeline.sources import files
from konvene.pipeline.sources.client_config import NO_CONFIG, ClientConfig
from konvene.pipeline.sources.files import Partition, Segment
from konvene.pipeline.sources.limits import Limit, Part, limited
from konvene.pipeline.sources.live import ranges

__all__ = ["Files", "Live", "Place", "Slice", "Source", "Wanted"]

_SegmentKey = tuple[str, int, int | None, bool]
"""Path and size of a segment, base offset of the next one, and whether it has records."""
LIVE_TASK_OFFSETS = 500_000
"""Number of offsets of a live partition per task."""


class Slice(NamedTuple):
    """The offsets `[first, last]` of one partition, which one task reads."""

    of: Partition
    first: int
    last: int
    split: Split | None = None
    """The part of a segment; None if the offsets are fetched."""
    bootstrap: str = ""
    client: ClientConfig = NO_CONFIG
    """How to connect to the servers in `bootstrap`."""


class Place(NamedTuple):
    """The offsets `[first, next)` that a partition has; some in between may be missing."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter for the topics, partitions and offsets to read."""

    topics: re.Pattern[str]
    """Allowed topic names."""
    partitions: frozenset[int] | None = None
    least_offset: int = 0
    largest_offset: int = (1 << 63) - 1
    headers_only: bool = False
    """True if of user topics only headers of batches are read. In the directory of a follower, their logs
    have nothing else."""

    def has(self, of: Partition) -> bool:
        return self.topics.fullmatch(of.topic) is not None and (
            self.partitions is None or of.partition in self.partitions
        )


@dataclass(slots=True)
class Files:
    """Log segments below some paths, which may be growing, as a source of a query."""

    paths: tuple[str, ...]
    cluster: str = ""
    task_bytes: int = splits.TASK_BYTES
    _extents: dict[_SegmentKey, Extent | None] = field(default_factory=dict)

    def places(self, wanted: Wanted) -> dict[Partition, Place]:
        found = {}
        for of, parts in self._partitions(wanted).items():
            found[of] = Place(parts[0][1].first, max(extent.next for _, extent in parts))
        return found

    def slices(
        self, wanted: Wanted, start: Mapping[Partition, int], end: Mapping[Partition, int]
    ) -> list[Slice]:
        """Return the slices between two sets of offsets; a partition missing in `start` begins at its first
        offset."""
        made = []
        for of, parts in self._partitions(wanted).items():
            first = max(start.get(of, 0), wanted.least_offset)
            last = min(end.get(of, 0) - 1, wanted.largest_offset)
            for segment, extent, begin, until in cover(parts, first, last):
                for each in splits.cut(segment, extent, begin, until, self.task_bytes):
                    made.append(Slice(of, each.first, each.last, each))
        return made

    def limited(
        self, wanted: Wanted, start: Mapping[Partition, int], target: Mapping[Partition, int], limit: Limit
    ) -> dict[Partition, int]:
        """Return the end offsets of the next micro-batch: from `start` towards `target`, within `limit`."""
        ahead = {
            of: [
                Part(segment.path, extent, begin, until)
                for segment, extent, begin, until in cover(parts, start.get(of, 0), target.get(of, 0) - 1)
            ]
            for of, parts in self._partitions(wanted).items()
        }
        return limited(ahead, start, limit)

    def _partitions(self, wanted: Wanted) -> dict[Partition, list[tuple[Segment, Extent]]]:
        found: dict[Partition, list[tuple[Segment, Extent]]] = {}
        extents: dict[_SegmentKey, Extent | None] = {}
        for copy in files.find(self.paths, self.cluster).copies:
            if not wanted.has(copy.of):
                continue
            bases = [segment.base_offset for segment in copy.segments[1:]]
            for segment, behind in zip_longest(copy.segments, bases):  # The last one, if any, gets None.
                has_records = not (wanted.headers_only and segment.kept) or copy.of.topic in READ_WHOLE
                key = (segment.path, segment.size, behind, has_records)
                extent = extents[key] = self._extent(segment, behind, has_records)
                if extent is not None:
                    found.setdefault(copy.of, []).append((segment, extent))
        self._extents = extents
        return {of: sorted(found[of], key=lambda part: (part[1].first, part[0].path)) for of in sorted(found)}

    def _extent(self, segment: Segment, behind: int | None, has_records: bool) -> Extent | None:
        """Return the extent of a segment, cached until the file grows; None if it has none or was deleted.

        `behind` is the base offset of the segment after it, if there is one."""
        known = self._extents.get((segment.path, segment.size, behind, has_records))
        if known is not None:
            return known
        try:
            return splits.extent(segment, behind, has_records=has_records)
        except FileNotFoundError:  # Retention took it meanwhile.
            return None


@dataclass(frozen=True, slots=True)
class Live:
    """The logs of a live cluster, read over Fetch, as a source of a query."""

    bootstrap: str
    cluster: str = ""
    topics: tuple[str, ...] = ()
    client: ClientConfig = NO_CONFIG

    def places(self, wanted: Wanted) -> dict[Partition, Place]:
        async def ask() -> tuple[str | None, dict[TopicPartition, tuple[int, int]]]:
            async with Cluster(self.bootstrap, self.client.client_settings()) as cluster:
                found = await ranges(cluster, self.topics)
                return cluster.metadata.cluster_id, found

        cluster_id, found = asyncio.run(ask())
        named = {Partition(cluster_id or self.cluster, *tp): Place(*at) for tp, at in sorted(found.items())}
        return {of: place for of, place in named.items() if wanted.has(of) and place.next > place.first}

    def slices(
        self, wanted: Wanted, start: Mapping[Partition, int], end: Mapping[Partition, int]
    ) -> list[Slice]:
        made = []
        for of, behind in end.items():
            if not wanted.has(of):
                continue
            last = min(behind - 1, wanted.largest_offset)
            for first in range(max(start.get(of, 0), wanted.least_offset), last + 1, LIVE_TASK_OFFSETS):
                until = min(last, first + LIVE_TASK_OFFSETS - 1)
                made.append(Slice(of, first, until, bootstrap=self.bootstrap, client=self.client))
        return made

    def limited(
        self, wanted: Wanted, start: Mapping[Partition, int], target: Mapping[Partition, int], limit: Limit
    ) -> dict[Partition, int]:
        if limit.records is None:
            return dict(target)
        reached = dict(start)
        behind = [of for of in target if reached.get(of, 0) < target[of]]
        left = limit.records
        for number, of in enumerate(behind):
            take = min(target[of] - reached.get(of, 0), max(1, left // (len(behind) - number)))
            reached[of] = reached.get(of, 0) + take
            left -= take
            if left <= 0:
                break
        return reached


Source = Files | Live


def cover(
    parts: Sequence[tuple[Segment, Extent]], first: int, last: int
) -> Iterator[tuple[Segment, Extent, int, int]]:
    """Choose segments that together have the offsets `[first, last]`, each offset from one of them only."""
    position = first
    while position <= last:
        here = [part for part in parts if part[1].first <= position < part[1].next]
        if here:
            segment, extent = max(here, key=lambda part: (part[0].kept, part[1].next, part[0].size))
        else:
            later = [part for part in parts if position < part[1].first <= last]
            if not later:
                return
            position = min(part[1].first for part in later)
            continue
        until = min(last, extent.next - 1)
        yield segment, extent, position, until
        position = until + 1
