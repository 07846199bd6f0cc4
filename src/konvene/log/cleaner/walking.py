"""Records passed through in place: where each one begins and ends, its key, whether it has a value.

No record is made, for a cleaning reads every record of a log and keeps few. What a record holds behind its
key and value (headers) is not looked at; that its lengths agree is. `data` holds the records of a batch,
unpacked, from `at` to `end`; an IndexError means that they ended too early.

Long and alike on purpose: each of the three walks writes out the one-byte and two-byte case of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.codec.errors import CorruptBatch
from konvene.codec.varint import read_varint, read_varlong, write_varint, write_varlong

Spans = list[tuple[int, int]]
"""Where what stays begins and ends; neighbours are one."""


def note_keys(entries: dict[bytes, int], data: bytes, at: int, end: int, count: int, twice: int) -> int:
    """Write down of each key twice the offset, plus one for a tombstone; how many records have no key.

    `twice`: twice the base offset of the batch.
    """
    keyless = 0
    for _ in range(count):
        size = data[at]
        if size < 0x80:
            at += 2
            stop = at - 1 + (size >> 1)
        else:
            size, at = read_varint(data, at)
            stop = at + size
            at += 1
        while data[at] >= 0x80:  # the timestamp
            at += 1
        delta = data[at + 1]
        if delta < 0x80:
            at += 2
        else:
            delta, at = read_varint(data, at + 1)
            delta <<= 1
        length = data[at]
        if length < 0x80:
            at += 1
        else:
            length, at = read_varint(data, at)
            length <<= 1
        if length & 1:
            keyless += 1
        else:
            key_end = at + (length >> 1)
            entries[data[at:key_end]] = twice + delta + (data[key_end] == 1)
            at = key_end
        if at >= stop or stop > end:
            raise CorruptBatch("the lengths of a record do not agree")
        at = stop
    if at != end:
        raise CorruptBatch(f"{end - at} bytes too many")
    return keyless


def keys(
    data: bytes, at: int, end: int, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bool, int, int]]:
    """Of each record: offset, key, whether it is a tombstone, where it begins and where it ends."""
    out: list[tuple[int, bytes | None, bool, int, int]] = []
    for _ in range(count):
        start = at
        size, at = read_varint(data, at)
        stop = at + size
        _, at = read_varlong(data, at + 1)
        delta, at = read_varint(data, at)
        length, at = read_varint(data, at)
        key: bytes | None = None
        if length >= 0:
            key = data[at : at + length]
            at += length
        if at >= stop or stop > end:
            raise CorruptBatch("the lengths of a record do not agree")
        out.append((base_offset + delta, key, data[at] == 1, start, stop))
        at = stop
    if at != end:
        raise CorruptBatch(f"{end - at} bytes too many")
    return out


def written_anew(
    data: bytes, spans: Spans, base_timestamp: int, stamped: int | None, delete_horizon: int | None
) -> tuple[bytes, int, int, int]:
    """What stays, with times from a new base: `(records, how many, base timestamp, newest timestamp)`.

    The base is the delete horizon, or where there is none the time of the first record that stays. Where
    that is the old one too, the records are as they were. `stamped`: the time of all of them, if the broker
    gave it.
    """
    times: list[tuple[int, int, int]] = []
    newest = -1
    for start, end in spans:
        at = start
        while at < end:
            size, at = read_varint(data, at)
            stop = at + size
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


def last_of(entries: Mapping[bytes, int], key: bytes) -> int:
    """The last offset of a key, or -1."""
    found = entries.get(key)
    return -1 if found is None else found >> 1
