"""Vectorised decoding of offset commits: more than ninety of a hundred records of a busy coordinator.

The declarations in `konvene.records.offsets` are repeated here for columns. Only records of the usual form
(`plain`) are decoded: a key of exactly two strings and a number, a value of exactly the fields of its
version, and in the flexible version 4 no tag but the topic id. Everything else, rare or invalid, goes to the
broker's own decoder; a test compares the two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.arrays import Bools, Ints
from konvene.pipeline.codec.batches import Bytes
from konvene.pipeline.codec.bronze import LogRecords, int16_at, texts
from konvene.pipeline.codec.flat import Raw, ids_at, keys_and_values, numbers_at

__all__ = ["decode"]

_KEY = 10
"""Bytes of a key besides its strings: type, two lengths, partition."""
_TAGGED = 27
"""Bytes after the metadata of version 4: timestamp, number of tags, tag, tag size, topic id."""
_ONE_ID = 0x010010
"""Bytes before the topic id: one tag, tag 0, 16 bytes."""


def decode(records: LogRecords, legacy: bool, *, ids: bool = True) -> tuple[Bools, list[pa.Array]]:
    """Decode offset commits that have the usual form (see the module docstring) all at once.

    Returns a mask of these records, and their columns of key and value in declaration order. The others are
    left to the broker's decoder. `legacy` means that the records are of type 0 (`LegacyOffsetCommitKey`).
    Without `ids` all topic ids are null, which saves a tenth of the time."""
    key, value = keys_and_values(records)
    group = records.column("group_id")
    plain, topic, partition = _keys(key)
    if group.null_count:
        plain &= group.is_valid().to_numpy(zero_copy_only=False)
    fits, columns = _values(value, legacy, ids)
    plain &= fits
    every = [group, topic, partition, *columns]
    if not plain.all():
        mask = pa.array(plain)
        every = [column.filter(mask) for column in every]
    return plain, every


def _keys(key: Raw) -> tuple[Bools, pa.Array, pa.Array]:
    """Return a mask of the keys that have the usual form, and the topic and partition in each."""
    group = int16_at(key.data, key.at + 2).astype(np.int64)
    at = key.at + 4 + group
    topic = int16_at(key.data, at).astype(np.int64)
    fits = ~key.null & (group >= 0) & (topic >= 0) & (key.end - key.at == _KEY + group + topic)
    topics, is_text = texts(key.data, at + 2, topic, fits)
    partition = numbers_at(key.data, at + 2 + topic, ">i4")
    return fits & is_text, topics, pa.array(partition.astype(np.int32))


def _values(value: Raw, legacy: bool, with_ids: bool) -> tuple[Bools, list[pa.Array]]:
    """Return a mask of the rows to decode here, and a column per field of the value, null for tombstones.

    The mask selects tombstones and values of the usual form. `legacy` is as in `decode`; such values have
    neither leader epoch nor expiry nor topic id, so these columns are left out."""
    data, there = value.data, ~value.null
    version = int16_at(data, value.at)
    known = version == 0 if legacy else (version >= 0) & (version <= 4)
    fits = there & known & (value.end - value.at >= 2)
    late = fits & (version >= 3)
    at = value.at + np.where(late, 14, 10)
    length = int16_at(data, at).astype(np.int64)
    flexible = fits & (version == 4)
    rest = np.where(fits & (version == 1), 16, 8)
    at = at + 2
    if flexible.any():
        first = _byte(data, at - 2)
        length = np.where(flexible, np.where(first < 0x80, first - 1, -1), length)
        at = at - flexible
    size = value.end - at - length
    tail = at + length
    tagged = np.zeros_like(fits)
    if flexible.any():
        tagged = flexible & (size == _TAGGED) & (numbers_at(data, tail + 7, ">i4") & 0xFFFFFF == _ONE_ID)
        untagged = flexible & (size == 9)
        if untagged.any():
            untagged &= _byte(data, tail + 8) == 0
        fits &= ~flexible | tagged | untagged
    fits &= (length >= 0) & (flexible | (size == rest))
    if not length[fits].any():
        metadata, is_text = pc.if_else(pa.array(fits), "", pa.scalar(None, pa.string())), fits
    else:
        metadata, is_text = texts(data, at, length, fits)
    fits &= is_text | ~fits
    null = pa.array(~fits) if not fits.all() else None
    offset = _masked(numbers_at(data, value.at + 2, ">i8"), null)
    time = _masked(numbers_at(data, tail, ">i8"), null)
    plain = value.null | (fits & is_text)
    if legacy:
        return plain, [offset, metadata, time]
    epoch = np.where(late, numbers_at(data, value.at + 10, ">i4"), -1).astype(np.int32)
    expires = fits & (version == 1)
    expiry = np.full(len(fits), -1, np.int64)
    if expires.any():
        expiry[expires] = numbers_at(data, tail[expires] + 8, ">i8")
    ids = ids_at(data, tail + 11, tagged & fits) if with_ids else pa.nulls(len(fits), pa.string())
    return plain, [offset, _masked(epoch, null), metadata, time, _masked(expiry, null), ids]


def _masked(values: npt.NDArray[np.integer], null: pa.Array | None) -> pa.Array:
    return pa.array(values, mask=None if null is None else null.to_numpy(zero_copy_only=False))


def _byte(data: Bytes, at: Ints) -> Ints:
    """Return the bytes at these positions; the value is undefined for positions out of bounds."""
    if not len(data):
        return np.zeros(len(at), np.int64)
    return data.take(at, mode="clip").astype(np.int64)
