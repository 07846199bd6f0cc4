"""Vectorised operations on integer columns that several modules need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Bools", "Ints", "bools", "first_behind", "grown", "ints", "last_of_each", "order_of", "running_max",
]  # fmt: skip

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def last_of_each(key: Ints) -> Ints:
    """Return the index of the last occurrence of each distinct key, in ascending order of keys."""
    _, behind = np.unique(key[::-1], return_index=True)
    last: Ints = len(key) - 1 - behind
    return last


def first_behind(producers: Ints, offsets: Ints, whose: Ints, since: Ints) -> Ints:
    """Return for each row the first marker of its producer after its offset, as an index; -1 if there is
    none.

    `producers` and `offsets` describe the markers, sorted by both; `whose` and `since` the rows."""
    _, codes = np.unique(np.concatenate([producers, whose]), return_inverse=True)
    low = min(int(offsets.min()), int(since.min()))
    span = max(int(offsets.max()), int(since.max())) - low + 2
    marks = codes[: len(producers)] * span + (offsets - low)
    wanted = codes[len(producers) :] * span + (since - low)
    at = np.searchsorted(marks, wanted, "right")
    inside = np.minimum(at, len(marks) - 1)
    fits = (at < len(marks)) & (producers[inside] == whose)
    found: Ints = np.where(fits, inside, -1)
    return found


def order_of(key: Ints, keys: int) -> Ints:
    """Return the indices that sort `key` stably; its values are below `keys`. Values of 16 bits are sorted
    faster, by radix sort."""
    order: Ints = np.argsort(key.astype(np.uint16) if keys <= 1 << 16 else key, kind="stable")
    return order


def running_max(key: Ints, values: Ints, start: Ints) -> Ints:
    """Return for each row the largest value before it among the rows of its key, but at least its `start`.

    `key`, `values` and `start` have an element per row; rows are sorted by key."""
    heads = np.r_[True, key[1:] != key[:-1]]
    segment = np.cumsum(heads) - 1
    low = min(int(values.min()), int(start.min()))
    span = max(int(values.max()), int(start.max())) - low + 1
    shifted = np.r_[start[:1], values[:-1]]
    shifted = np.where(heads, start, np.maximum(shifted, start))
    raised = np.maximum.accumulate(shifted - low + segment * span)
    found: Ints = raised - segment * span + low
    return found


def grown(values: Ints, length: int, fill: int) -> Ints:
    """Return the array, extended with `fill` if it has fewer than `length` elements; its size at least
    doubles then."""
    if len(values) >= length:
        return values
    more = np.full(max(length, 2 * len(values)), fill, np.int64)
    more[: len(values)] = values
    return more


def bools(column: pa.Array | pa.ChunkedArray) -> Bools:
    found: Bools = column.to_numpy().astype(np.bool_)
    return found


def ints(column: pa.Array | pa.ChunkedArray, null: int | None = None) -> Ints:
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    found: Ints = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return found.astype(np.int64, copy=False)
