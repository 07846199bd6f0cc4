"""Outcomes of the transactions in a part of a user topic's log.

A transaction's records and its end marker are in the same log, and a producer has one transaction at a time:
so the first marker of its producer after a record is the outcome of the record's transaction. Where a part
ends before that marker, the search goes on in the rest of the segment and in later segments, by batch headers
alone, until every transaction of the part has ended or the log does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from konvene.codec.batches import BatchHeader, read_end_marker, records
from konvene.codec.errors import CodecError
from konvene.log.disk.read_only import ReadOnlyFile
from konvene.pipeline.arrays import Bools, Ints, first_behind
from konvene.pipeline.ingest.splits import Split, walk_headers

__all__ = ["Outcomes", "outcomes"]


@dataclass(slots=True)
class Outcomes:
    """End markers of transactions: for each its producer id, its offset, and whether it is a commit."""

    markers: list[tuple[int, int, bool]] = field(default_factory=list)

    def committed(self, producers: Ints, offsets: Ints) -> Bools:
        """Return a mask of the transactional records whose transactions were committed."""
        if not self.markers or not len(offsets):
            return np.zeros(len(offsets), bool)
        ids, at, commits = (np.array(column) for column in zip(*sorted(self.markers), strict=True))
        found = first_behind(ids, at, producers, offsets)
        committed: Bools = (found >= 0) & commits[found]
        return committed


def outcomes(split: Split) -> Outcomes:
    """Return the outcomes of the transactions that have records in the part."""
    found, unfinished = Outcomes(), set[int]()
    for header, batch in _batches(split):
        if header.base_offset > split.last and not unfinished:
            break
        if header.is_control:
            committed = _committed(header, batch())
            if committed is not None:
                found.markers.append((header.producer_id, header.base_offset, committed))
                unfinished.discard(header.producer_id)
        elif header.is_transactional and header.base_offset <= split.last:
            unfinished.add(header.producer_id)
    return found


def _committed(header: BatchHeader, batch: bytes) -> bool | None:
    """Return whether a control batch commits or aborts a transaction; None if it does neither."""
    try:
        markers = [read_end_marker(record) for record in records(batch, header)]
    except CodecError:
        return None
    return next((marker.committed for marker in markers if marker is not None), None)


def _batches(split: Split) -> Iterator[tuple[BatchHeader, Callable[[], bytes]]]:
    """Yield the headers of the batches from the part on, each with a function that reads the batch."""
    folder, position, expected = Path(split.path).parent, split.position, 0
    later = sorted(p for p in folder.glob("*.log") if p.stem.isdigit() and int(p.stem) > split.segment_base)
    for path in (Path(split.path), *later):
        try:
            file = ReadOnlyFile(str(path))
        except FileNotFoundError:  # Retention deletes whole segments, oldest first.
            continue
        try:
            for header, at in walk_headers(file, file.size(), position, expected):
                yield header, functools.partial(file.pread, header.size, at)
                expected = header.next_offset
        finally:
            file.close()
        position = 0
