"""Archives records of aborted transactions, which groups with `read_committed` never receive.

They are acquired with the rest of their batch and archived at once. Nothing is written: when they are read
again, they are archived again. Transaction markers are delivered like records; members acknowledge them as
gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from konvene.codec.batches import BatchHeader
from konvene.delivery.contract import Acquired, RecordState
from konvene.delivery.runs import NO_LOCK
from konvene.delivery.window import Window

Range = tuple[int, int]


def aborted_ranges(headers: Iterable[BatchHeader], aborted: Iterable[tuple[int, int]]) -> list[Range]:
    """Return the offset ranges of the batches that belong to aborted transactions.

    `aborted` has the producer id and the first offset of each aborted transaction."""
    waiting = sorted(aborted, key=lambda transaction: -transaction[1])
    open_ids: dict[int, None] = {}
    ranges: list[Range] = []
    for header in headers:
        if not header.has_producer_id:
            continue
        last = header.last_offset
        while waiting and waiting[-1][1] <= last:
            open_ids[waiting.pop()[0]] = None
        if header.producer_id not in open_ids:
            continue
        if header.is_control:
            # The producer's open transaction is an aborted one, so this marker ends it.
            del open_ids[header.producer_id]
        elif header.is_transactional:
            ranges.append((header.base_offset, last))
    return ranges


def split_aborted(
    acquired: Sequence[Acquired], ranges: Sequence[Range]
) -> tuple[list[Acquired], list[Range]]:
    """Split acquired records into those outside of the aborted `ranges` and those within, both in order."""
    kept: list[Acquired] = []
    dropped: list[Range] = []
    at = 0
    for first, last, count in acquired:
        while at < len(ranges) and ranges[at][1] < first:
            at += 1
        near = at
        while near < len(ranges) and ranges[near][0] <= last:
            begin, end = max(ranges[near][0], first), min(ranges[near][1], last)
            if begin > first:
                kept.append(Acquired(first, begin - 1, count))
            dropped.append((begin, end))
            first = end + 1
            near += 1
        if first <= last:
            kept.append(Acquired(first, last, count))
    return kept, dropped


def archive(window: Window, dropped: Iterable[Range]) -> None:
    """Archive these ranges, which were just acquired, and remove their locks."""
    for first, last in dropped:
        for cell in window.between(first, last):
            part = window.cut_out(cell, max(cell.first, first), min(cell.last, last))
            window.move(part, RecordState.ARCHIVED)
            part.lock_end_ms = NO_LOCK
