"""Arithmetic of offset spans: which offsets of a partition were read, and how complete they are. Pure.

A span is a range of offsets that was read. A `whole` one has a record for every offset. In a `compacted` one
some are missing, so another copy of the log that was compacted later may still have them. Offsets between
spans were not found in any copy. Spans never overlap; adjacent whole ones are merged.

A compacted log has a gap at every other record, so whole stretches shorter than `WORTH` count to the
compacted span around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from konvene.pipeline.arrays import Ints

__all__ = ["COMPACTED", "MISSING", "WHOLE", "WORTH", "Covered", "Range", "Span", "spans_of"]

WHOLE, COMPACTED, MISSING = "whole", "compacted", "missing"
WORTH = 1000


class Range(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class Span(NamedTuple):
    first: int
    last: int
    kind: str
    records: int


def spans_of(offsets: Ints, within: Range) -> list[Span]:
    """Return the spans that cover a range with records at these offsets, which rise and are unique."""
    first, last = within
    if not len(offsets):
        return [Span(first, last, COMPACTED, 0)]
    holes = np.flatnonzero(np.diff(offsets) != 1)
    begins = np.concatenate(([0], holes + 1))
    ends = np.concatenate((holes, [len(offsets) - 1]))
    all_of_it = offsets[0] == first and offsets[-1] == last and not len(holes)
    worth = np.flatnonzero((ends - begins + 1 >= WORTH) | all_of_it)
    spans, at = [], first
    for run in worth.tolist():
        begin, end = int(offsets[begins[run]]), int(offsets[ends[run]])
        if begin > at:
            spans.append(_compacted(offsets, at, begin - 1))
        spans.append(Span(begin, end, WHOLE, end - begin + 1))
        at = end + 1
    if at <= last:
        spans.append(_compacted(offsets, at, last))
    return spans


def _compacted(offsets: Ints, first: int, last: int) -> Span:
    count = np.searchsorted(offsets, last, "right") - np.searchsorted(offsets, first, "left")
    return Span(first, last, COMPACTED, int(count))


@dataclass(slots=True)
class Covered:
    """The ledger of one partition: the spans that were read, and the segments that were searched."""

    spans: list[Span] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Fingerprints of segments that were searched for missing records of compacted spans."""

    def __repr__(self) -> str:
        return f"<{len(self.spans)} spans up to {self.spans[-1].last if self.spans else -1}>"

    @classmethod
    def from_json(cls, row: dict[str, Any] | None) -> Covered:
        if row is None:
            return cls()
        return cls([Span(*span) for span in row["spans"]], list(row["seen"]))

    def to_json(self) -> dict[str, object]:
        return {"spans": [list(span) for span in self.spans], "seen": list(self.seen)}

    def open(self, wanted: Range) -> list[Range]:
        """Return the parts of a range that no span covers."""
        return without(wanted, self.spans)

    def doubtful(self, wanted: Range) -> list[Span]:
        """Return the compacted spans that overlap a range."""
        return [
            s for s in self.spans if s.kind == COMPACTED and s.first <= wanted.last and wanted.first <= s.last
        ]

    def within(self, wanted: Range) -> tuple[Range, ...]:
        """Return the overlaps of a range with the spans."""
        parts = (Range(max(s.first, wanted.first), min(s.last, wanted.last)) for s in self.spans)
        return tuple(part for part in parts if part.first <= part.last)

    def put(self, within: Range, found: Iterable[Span]) -> None:
        """Record the spans of a range, replacing those within it."""
        new = list(found)
        kept = [s for s in self.spans if not (within.first <= s.first and s.last <= within.last)]
        joined: list[Span] = []
        for span in sorted([*kept, *new]):
            before = joined[-1] if joined else None
            if before is not None and before.last >= span.first:
                raise ValueError(f"{span} overlaps {before}")
            if before is not None and before.kind == span.kind == WHOLE and before.last + 1 == span.first:
                joined[-1] = Span(before.first, span.last, WHOLE, before.records + span.records)
            else:
                joined.append(span)
        self.spans = joined

    def with_missing(self) -> list[Span]:
        """Return the spans and, between them, the missing ranges, from offset 0 on."""
        rows, at = [], 0
        for span in self.spans:
            if span.first > at:
                rows.append(Span(at, span.first - 1, MISSING, 0))
            rows.append(span)
            at = span.last + 1
        return rows


def without(wanted: Range, taken: Sequence[Span] | Sequence[Range]) -> list[Range]:
    """Return the parts of a range that are in none of `taken`, which are sorted and do not overlap."""
    left, at = [], wanted.first
    for each in taken:
        if each[1] < at:
            continue
        if each[0] > wanted.last:
            break
        if each[0] > at:
            left.append(Range(at, each[0] - 1))
        at = each[1] + 1
    if at <= wanted.last:
        left.append(Range(at, wanted.last))
    return left
