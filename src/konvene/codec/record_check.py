"""Validates the records of a producer's batch before it is appended, without creating record objects.

Every length, count and offset must agree, as in `batches.records`; offsets must have no gaps. Records of the
common shape (sizes and offset deltas of one or two bytes, no headers) are parsed in place, others by
`batches.read_record`. A run of records of equal size is checked by columns: the bytes at one position of all
of them are compared at once.

Also finds the newest timestamp and missing keys. A record stores its timestamp as a zigzag number: the
difference to the batch's base timestamp, doubled, and odd if the difference is negative. So the newest record
has the largest even number, and without an odd number no record is older than the base timestamp.
"""

from __future__ import annotations

from sys import byteorder
from typing import Literal

from konvene.codec.batches import HEADER_SIZE, PREFIX_SIZE, BatchHeader, read_record
from konvene.codec.compression import DEFAULT_LIMIT, Buffer, decompress
from konvene.codec.errors import CorruptBatch, Truncated

_COMPRESSION = 0x07

#: Offset deltas as they stand in records: below 64 in one byte, below 8192 in two.
_ONE_BYTE, _TWO_BYTES = 64, 8192
_DELTAS = bytes(index << 1 for index in range(_ONE_BYTE))
_LOW = bytes(index << 1 & 0x7F | 0x80 for index in range(_TWO_BYTES))
_HIGH = bytes(index >> 6 for index in range(_TWO_BYTES))

_LAST_SHIFT = 63
"""Position of a timestamp's tenth byte; a record that needs it is read in full."""

_WORTH_COLUMNS = 4
"""Length of a run of equal-sized records from which on columns are compared."""

_FLIPPED = bytes(byte ^ 0x80 for byte in range(256))
_ODD = bytes((byte & 1) << 7 for byte in range(256))
"""Translation tables with which `isascii` tests whether all bytes continue, or whether all are even."""

_INTEGER_CODES: dict[int, Literal["H", "I", "Q"]] = {2: "H", 4: "I", 8: "Q"}
"""Codes of unsigned integers by size in bytes."""


Checked = tuple[bytes, int | None, bool, bool]
"""Result of checking a batch: the decompressed records; the newest timestamp relative to the base timestamp
(None if all are older); whether a record is older than the base timestamp; and with `keyed`, whether a record
has no key. Not a named tuple, because that costs a batch of one record a tenth more."""


def check_records(
    batch: Buffer, header: BatchHeader, *, limit: int = DEFAULT_LIMIT, keyed: bool = False
) -> Checked:
    """Check all records of one batch.

    Returns the decompressed records; the newest timestamp as its difference to the base timestamp, or None if
    all are older than that; whether a record is older; and, with `keyed`, whether one has no key (which
    raises nothing). Raises `TooLarge` if the decompressed records exceed `limit` bytes, and `CorruptBatch`,
    `Truncated` and `Malformed` as `batches.records` does. Long because the common record is parsed in place.
    """
    body: Buffer = memoryview(batch)[HEADER_SIZE : header.batch_length + PREFIX_SIZE]
    data = decompress(header.attributes & _COMPRESSION, body, limit)
    count = header.record_count
    index = pos = before = 0
    newest, earlier, keyless = -1, False, False
    try:
        while index < count:
            at = pos
            size = data[at]
            if size < 0x80:
                at += 2
                end = at - 1 + (size >> 1)
            else:
                high = data[at + 1]
                at += 3
                end = at - 1 + (size >> 1 & 0x3F | high << 6)
                if high >= 0x80:
                    size = 1  # more than two bytes: the long way, as if it were negative
            stamp = data[at]
            at += 1
            if stamp >= 0x80:
                stamp &= 0x7F
                shift = 7
                while (byte := data[at]) >= 0x80 and shift < _LAST_SHIFT:
                    stamp |= (byte & 0x7F) << shift
                    shift += 7
                    at += 1
                if shift == _LAST_SHIFT:
                    size = 1
                stamp |= byte << shift
                at += 1
            delta_at = at
            if index < _ONE_BYTE:
                odd = size & 1 or data[at] != index << 1
                at += 1
            elif index < _TWO_BYTES:
                odd = size & 1 or data[at] != _LOW[index] or data[at + 1] != _HIGH[index]
                at += 2
            else:
                odd = True
            length = data[at]  # of the key
            at += 1 + (length >> 1)
            if not odd and not (length & 0x81 and (keyed or length != 1)):
                length = data[at]  # of the value
                if length < 0x80:
                    at += 2 + (length >> 1)
                    odd = length & 1 and length != 1
                else:
                    high = data[at + 1]
                    at += 3 + (length >> 1 & 0x3F | high << 6)
                    odd = length & 1 or high >= 0x80
                if not odd and at == end and not data[end - 1]:
                    if stamp & 1:
                        earlier = True
                    elif stamp > newest:
                        newest = stamp
                    if end - pos == before:
                        alike, top, some = _alike(data, pos, end, delta_at, index, count)
                        index += alike
                        pos += alike * before
                        if top > newest:
                            newest = top
                        if some:
                            earlier = True
                    else:
                        before = end - pos
                        index += 1
                        pos = end
                    continue
            pos, distance, has_key = _check_record(data, pos, index)
            index += 1
            if distance < 0:
                earlier = True
            elif distance << 1 > newest:
                newest = distance << 1
            if keyed and not has_key:
                keyless = True
    except IndexError:
        raise Truncated(f"the records of the batch at offset {header.base_offset} are cut") from None
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} bytes too many in the batch at offset {header.base_offset}")
    return data, None if newest < 0 else newest >> 1, earlier, keyless


def _alike(data: bytes, pos: int, end: int, delta_at: int, index: int, count: int) -> tuple[int, int, bool]:
    """Check by columns the records that follow a valid one at `pos` .. `end` and have its size and shape.

    The valid one is number `index` of `count`, and its offset delta is at `delta_at`. Returns the number of
    valid records including it, their largest even timestamp number (or -1), and whether one is odd (see the
    module). The number is 1 if no other record is known to be valid.
    """
    size = end - pos
    width, below = (1, _ONE_BYTE) if index < _ONE_BYTE else (2, _TWO_BYTES)
    alike = min(below, count) - index
    alike = min(alike, (len(data) - pos) // size)
    if alike < _WORTH_COLUMNS or data[pos + size] != data[pos]:
        return _ALONE
    key_at = delta_at + width
    value_at = key_at + 1 + (data[key_at] >> 1)
    fixed = [pos, key_at, value_at, end - 1]
    stamp_at = pos + 2
    if data[pos] >= 0x80:
        fixed.append(pos + 1)
        stamp_at += 1
    if data[value_at] >= 0x80:
        fixed.append(value_at + 1)
    stop = pos + alike * size
    for at in fixed:
        column = data[at:stop:size]
        other = len(column.lstrip(column[:1]))
        if other:
            alike -= other
            stop = pos + alike * size
    if width == 1:
        right = data[delta_at:stop:size] == _DELTAS[index : index + alike]
    else:
        right = (
            data[delta_at:stop:size] == _LOW[index : index + alike]
            and data[delta_at + 1 : stop : size] == _HIGH[index : index + alike]
        )
    if not right:
        return _ALONE
    last = data[delta_at - 1 : stop : size]
    if not last.isascii():
        return _ALONE
    if delta_at == stamp_at + 1:
        if last.translate(_ODD).isascii():
            return alike, max(last), False
        return alike, _greatest_even(last), True
    return _longer_stamps(data, stamp_at, delta_at, stop, size, alike)


_ALONE = (1, -1, False)


def _longer_stamps(
    data: bytes, stamp_at: int, delta_at: int, stop: int, size: int, alike: int
) -> tuple[int, int, bool]:
    """Complete `_alike` for records whose timestamps have several bytes and equal length; return its result.

    The `alike` records of `size` bytes end at `stop`; the first has its timestamp at `stamp_at`.
    """
    wide = delta_at - stamp_at
    low = data[stamp_at:stop:size]
    going_on = low.translate(_FLIPPED).isascii()
    if wide == 2 and going_on and low.translate(_ODD).isascii():
        high = data[stamp_at + 1 : stop : size]
        top = max(high)
        first = high.find(top)
        if first + high.count(top) == alike:  # none of them is followed by less
            return alike, max(low[first:] if first else low) & 0x7F | top << 7, False
    # Byte by byte beside each other, they are in the order of the numbers that they stand for.
    word = 2 if wide == 2 else 4 if wide < 5 else 8
    words = bytearray(word * alike)
    words[_place(0, word) :: word] = low
    for place in range(1, wide):
        column = data[stamp_at + place : stop : size]
        if place < wide - 1:
            going_on = going_on and column.translate(_FLIPPED).isascii()
        if place < word:
            words[_place(place, word) :: word] = column
    if not going_on or wide > word:
        return _ALONE
    numbers = memoryview(words).cast(_INTEGER_CODES[word])
    even = low.translate(_ODD).isascii()
    top = max(numbers) if even else _greatest_even(numbers)
    if top >= 0:
        top = sum((top >> 8 * place & 0x7F) << 7 * place for place in range(wide))
    return alike, top, not even


def _place(place: int, word: int) -> int:
    """Return the index of byte number `place` (0 is the lowest) in the memory of a `word`-byte integer."""
    return place if byteorder == "little" else word - 1 - place


def _greatest_even(numbers: bytes | memoryview) -> int:
    return max((number for number in numbers if not number & 1), default=-1)


def _check_record(data: bytes, pos: int, index: int) -> tuple[int, int, bool]:
    """Check record number `index` of a batch; return `(position after it, timestamp difference, has a key)`.

    The difference is the one to the base timestamp. Raises `CorruptBatch` if the offset delta is not `index`.
    """
    record, pos, delta = read_record(data, pos, 0, 0, None)
    if delta != index:
        raise CorruptBatch(f"record {index} of the batch has offset delta {delta}")
    return pos, record.timestamp, record.key is not None
