"""Reads the bounds, keys and tombstones of records without creating record objects.

A cleaning reads every record and keeps few, so objects would be wasted. Record headers are not parsed, but
the lengths must agree. In every function `data` holds the decompressed records of a batch, from `at` to
`end`. An IndexError means that they end too early.

Two of the loops are long and alike for speed: the common one-byte varint is decoded inline.
"""

from __future__ import annotations

from konvene.codec.errors import CorruptBatch
from konvene.codec.varint import read_varint, read_varlong, write_varint, write_varlong

Spans = list[tuple[int, int]]
"""Start and end of the remaining records; adjacent ranges are merged."""


def collect_keys(entries: dict[bytes, int], data: bytes, at: int, end: int, count: int, twice: int) -> int:
    """Add the keys of a batch to `entries`; return the number of records without a key.

    A key's value is twice its offset, plus one for a tombstone. `twice` is twice the batch's base offset.
    """
    keyless = 0
    for _ in range(count):
        size = data[at]
        if size < 0x80:
            at += 1
        else:
            high = data[at + 1]
            if high < 0x80:
                size = size & 0x7F | high << 7
                at += 2
            else:
                size, at = read_varint(data, at)
                size <<= 1
        stop = at + (size >> 1)
        delta = data[at + 2]
        length = data[at + 3]
        if data[at + 1] | delta | length < 0x80:
            at += 4
        else:
            delta, length, at = _wide(data, at + 1)
        if length & 1:
            keyless += 1
            at += 1
        else:
            key_end = at + (length >> 1)
            entries[data[at:key_end]] = twice + delta + (data[key_end] == 1)
            at = key_end
        if at >= stop:
            raise CorruptBatch("the lengths of a record do not agree")
        at = stop
    if at != end:
        raise CorruptBatch(f"the records of a batch end at byte {at}, not {end}")
    return keyless


def iterate_keys(
    data: bytes, at: int, end: int, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bool, int, int]]:
    """Return `(offset, key, is a tombstone, start position, end position)` for each record."""
    out: list[tuple[int, bytes | None, bool, int, int]] = []
    for _ in range(count):
        start = at
        size = data[at]
        if size < 0x80:
            at += 1
        else:
            high = data[at + 1]
            if high < 0x80:
                size = size & 0x7F | high << 7
                at += 2
            else:
                size, at = read_varint(data, at)
                size <<= 1
        stop = at + (size >> 1)
        delta = data[at + 2]
        length = data[at + 3]
        if data[at + 1] | delta | length < 0x80:
            at += 4
        else:
            delta, length, at = _wide(data, at + 1)
        key: bytes | None = None
        if not length & 1:
            key = data[at : at + (length >> 1)]
            at += length >> 1
        if at >= stop:
            raise CorruptBatch("the lengths of a record do not agree")
        out.append((base_offset + (delta >> 1), key, data[at] == 1, start, stop))
        at = stop
    if at != end:
        raise CorruptBatch(f"the records of a batch end at byte {at}, not {end}")
    return out


def _wide(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the numbers before a record's key if one of them takes several bytes.

    `at` is the timestamp's position. Returns twice the offset delta, twice the key's length (1 without a
    key), and where the key begins.
    """
    while data[at] >= 0x80:  # the timestamp
        at += 1
    delta, at = read_varint(data, at + 1)
    length, at = read_varint(data, at)
    if delta < 0 or length < -1:
        raise CorruptBatch(f"a record with offset delta {delta} and a key of {length} bytes")
    return delta << 1, 1 if length < 0 else length << 1, at


def rebase_timestamps(
    data: bytes, spans: Spans, base_timestamp: int, stamped: int | None, delete_horizon: int | None
) -> tuple[bytes, int, int, int]:
    """Copy the records in `spans`, ranges of `data`, with timestamps relative to a new base timestamp.

    Returns `(bytes of the records, their count, the new base, newest timestamp)`. The new base is the delete
    horizon or, without one, the first of these records' timestamp. If it equals `base_timestamp`, the records
    are unchanged. `stamped` is the timestamp of every record if the broker set it, else None.
    """
    times: list[tuple[int, int, int]] = []
    newest = -1
    for start, end in spans:
        at = start
        while at < end:
            size, at = read_varint(data, at)
            stop = at + size
            delta = data[at + 1]
            if delta < 0x80:
                delta, rest = (delta >> 1) ^ -(delta & 1), at + 2
            else:
                delta, rest = read_varlong(data, at + 1)
            time = base_timestamp + delta if stamped is None else stamped
            times.append((time, rest, stop))
            newest = max(newest, time)
            at = stop
    base = times[0][0] if delete_horizon is None else delete_horizon
    if stamped is None and base == base_timestamp:
        body = b"".join([data[start:end] for start, end in spans])
    else:
        parts: list[bytes] = []
        for time, rest, stop in times:
            stamp = write_varlong(time - base)
            parts += (write_varint(1 + len(stamp) + stop - rest), b"\0", stamp, data[rest:stop])
        body = b"".join(parts)
    return body, len(times), base, newest
