"""How what is known of offsets and what is told of them become one: the shortest row of batches for both.

Where batches overlap, the higher delivery count holds, and of equal counts the later state: what became of a
record is never taken back by a message that is older. Neighbours that say the same are one. Offsets before
the start offset are nobody's business any more. Kafka's `PersisterStateBatchCombiner` gives the same batches.

What is known is a row already, in order and without overlaps; so only the part of it that the news touches is
gone through. That keeps a write as cheap in a long row as in a short one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from konvene.share_state.requests import StateBatch

UNKNOWN_OFFSET = -1

Batches = tuple[StateBatch, ...]


def combine(known: Batches, news: Iterable[StateBatch], start_offset: int) -> Batches:
    """The batches of both from `start_offset` on (-1: all). `known` is a row (`is_row`)."""
    known = _row_from(known, start_offset)
    fresh = pruned(tuple(news), start_offset)
    if not fresh:
        return known
    if len(fresh) == 1 and not known:
        return fresh
    first = min(batch.first_offset for batch in fresh)
    last = max(batch.last_offset for batch in fresh)
    begin = bisect_left(known, (first,))
    if begin and known[begin - 1].last_offset >= first - 1:
        begin -= 1
    end = bisect_left(known, (last + 2,), begin)
    return known[:begin] + _swept(known[begin:end] + fresh) + known[end:]


def in_a_row(batches: Batches) -> Batches:
    """Batches in any order, whether they overlap or not, as a row."""
    return batches if is_row(batches) else _swept(batches)


def is_row(batches: Sequence[StateBatch]) -> bool:
    """Whether they are in order, none overlaps another, and no neighbours say the same."""
    for before, after in pairwise(batches):
        gap = after.first_offset - before.last_offset
        if gap < 1 or (gap == 1 and before[2:] == after[2:]):
            return False
    return True


def pruned(batches: Batches, start_offset: int) -> Batches:
    """Without what is before the start offset; a batch that lies across it begins there."""
    if start_offset == UNKNOWN_OFFSET or not any(b.first_offset < start_offset for b in batches):
        return batches
    return tuple(
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    )


def _row_from(row: Batches, start_offset: int) -> Batches:
    """The same of a row, which is not gone through."""
    if not row or start_offset == UNKNOWN_OFFSET or row[0].first_offset >= start_offset:
        return row
    end = bisect_left(row, (start_offset,))
    return pruned(row[end - 1 : end], start_offset) + row[end:]


def _swept(batches: Batches) -> Batches:
    """Go through the places where a batch begins or ends; between two of them the strongest one holds."""
    turns: dict[int, list[tuple[tuple[int, int], int]]] = {}
    for first, last, state, count in batches:
        turns.setdefault(first, []).append(((count, state), 1))
        turns.setdefault(last + 1, []).append(((count, state), -1))
    row: list[StateBatch] = []
    active: dict[tuple[int, int], int] = {}
    opened, holds = 0, None
    for offset in sorted(turns):
        if holds is not None:
            count, state = holds
            tail = row[-1] if row else None
            if tail is not None and tail.last_offset + 1 == opened and tail[2:] == (state, count):
                row[-1] = tail._replace(last_offset=offset - 1)
            else:
                row.append(StateBatch(opened, offset - 1, state, count))
        for strength, more in turns[offset]:
            left = active.get(strength, 0) + more
            if left:
                active[strength] = left
            else:
                active.pop(strength, None)
        opened, holds = offset, max(active, default=None)
    return tuple(row)
