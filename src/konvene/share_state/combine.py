"""Merges new state batches of a share partition into the stored ones.

Where batches overlap, the higher delivery count wins, and among equal counts the higher state: an older write
never reverts an acknowledgement. Adjacent batches with equal state and count are joined. Offsets below the
start offset are dropped. The result equals that of Kafka's `PersisterStateBatchCombiner`.

Stored batches are normalized: ordered, disjoint, and no two adjacent ones have equal state and count. So only
the part that the new batches overlap is merged: a write costs the same with many stored batches as with few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from konvene.share_state.requests import StateBatch

UNKNOWN_OFFSET = -1

Batches = tuple[StateBatch, ...]


def combine(stored: Batches, new: Iterable[StateBatch], start_offset: int) -> Batches:
    """Merge `new` into `stored`, which is normalized, and drop offsets below `start_offset` (-1: none)."""
    stored = _drop_stored_below(stored, start_offset)
    fresh = drop_below(tuple(new), start_offset)
    if not fresh:
        return stored
    if len(fresh) == 1 and not stored:
        return fresh
    first = min(batch.first_offset for batch in fresh)
    last = max(batch.last_offset for batch in fresh)
    begin = bisect_left(stored, (first,))
    if begin and stored[begin - 1].last_offset >= first - 1:
        begin -= 1
    end = bisect_left(stored, (last + 2,), begin)
    return stored[:begin] + _sweep(stored[begin:end] + fresh) + stored[end:]


def normalized(batches: Batches) -> Batches:
    """Return normalized batches equal to `batches`, which may be unordered and overlap."""
    return batches if is_normalized(batches) else _sweep(batches)


def is_normalized(batches: Sequence[StateBatch]) -> bool:
    """Return True if batches are ordered and disjoint, and adjacent ones differ in state or count."""
    for before, after in pairwise(batches):
        gap = after.first_offset - before.last_offset
        if gap < 1 or (gap == 1 and before[2:] == after[2:]):
            return False
    return True


def drop_below(batches: Batches, start_offset: int) -> Batches:
    """Drop state batches below the start offset, trimming one that straddles it."""
    if start_offset == UNKNOWN_OFFSET or not any(b.first_offset < start_offset for b in batches):
        return batches
    return tuple(
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    )


def _drop_stored_below(stored: Batches, start_offset: int) -> Batches:
    """Drop state batches below the start offset from normalized batches, by binary search."""
    if not stored or start_offset == UNKNOWN_OFFSET or stored[0].first_offset >= start_offset:
        return stored
    end = bisect_left(stored, (start_offset,))
    return drop_below(stored[end - 1 : end], start_offset) + stored[end:]


def _sweep(batches: Batches) -> Batches:
    """Normalize batches in any order: where they overlap, the highest (delivery count, state) wins."""
    boundaries: dict[int, list[tuple[tuple[int, int], int]]] = {}
    for first, last, state, count in batches:
        boundaries.setdefault(first, []).append(((count, state), 1))
        boundaries.setdefault(last + 1, []).append(((count, state), -1))
    merged: list[StateBatch] = []
    active: dict[tuple[int, int], int] = {}
    opened, strongest = 0, None
    for offset in sorted(boundaries):
        if strongest is not None:
            count, state = strongest
            tail = merged[-1] if merged else None
            if tail is not None and tail.last_offset + 1 == opened and tail[2:] == (state, count):
                merged[-1] = tail._replace(last_offset=offset - 1)
            else:
                merged.append(StateBatch(opened, offset - 1, state, count))
        for strength, change in boundaries[offset]:
            count_left = active.get(strength, 0) + change
            if count_left:
                active[strength] = count_left
            else:
                active.pop(strength, None)
        opened, strongest = offset, max(active, default=None)
    return tuple(merged)
