"""The records of a producer's batch, checked without being made: what a broker does before it appends.

Every length, count and offset has to agree, as in `batches.records`; offsets must be given without a gap,
as producers give them. A record of the common shape (numbers of one or two bytes, no headers) is walked
through in place, every other one is read in full. Records of one size follow each other often, and then
their equal bytes are compared as columns, all records at once.
"""

from __future__ import annotations

from konvene.codec.batches import HEADER_SIZE, PREFIX_SIZE, BatchHeader, read_record
from konvene.codec.compression import DEFAULT_LIMIT, Buffer, decompress
from konvene.codec.errors import CorruptBatch, Malformed, Truncated

_COMPRESSION = 0x07

#: Offset deltas as they stand in records: below 64 in one byte, below 8192 in two.
_ONE_BYTE, _TWO_BYTES = 64, 8192
_DELTAS = bytes(index << 1 for index in range(_ONE_BYTE))
_LOW = bytes(index << 1 & 0x7F | 0x80 for index in range(_TWO_BYTES))
_HIGH = bytes(index >> 6 for index in range(_TWO_BYTES))

_LONGEST_STAMP = 12
"""A size of two bytes, the attributes, and of a timestamp's ten bytes all but the first."""

_WORTH_COLUMNS = 4
"""So many records of one size have to follow before they are compared as columns."""


def check_records(
    batch: Buffer, header: BatchHeader, *, limit: int = DEFAULT_LIMIT, keyed: bool = False
) -> None:
    """Check all records of one batch; `keyed`: a record without a key is refused too.

    Unpacks compressed records to at most `limit` bytes (`TooLarge`). `CorruptBatch`, `Truncated` and
    `Malformed` as in `batches.records`. Long because the common record is walked through in place.
    """
    body: Buffer = memoryview(batch)[HEADER_SIZE : header.batch_length + PREFIX_SIZE]
    data = decompress(header.attributes & _COMPRESSION, body, limit)
    count = header.record_count
    index = pos = before = 0
    try:
        while index < count:
            at = pos
            size = data[at]
            if size < 0x80:
                at += 1
                end = at + (size >> 1)
            else:
                high = data[at + 1]
                at += 2
                end = at + (size >> 1 & 0x3F | high << 6)
                if high >= 0x80:
                    size = 1  # more than two bytes: the long way, as if it were negative
            at += 1
            while data[at] >= 0x80:
                at += 1
                if at - pos > _LONGEST_STAMP:
                    size = 1
            delta_at = at = at + 1
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
            if odd or (length & 0x81 and (keyed or length != 1)):
                pos, index = _check_record(data, pos, header, index, keyed), index + 1
                continue
            length = data[at]  # of the value
            if length < 0x80:
                at += 2 + (length >> 1)
                odd = length & 1 and length != 1
            else:
                high = data[at + 1]
                at += 3 + (length >> 1 & 0x3F | high << 6)
                odd = length & 1 or high >= 0x80
            if odd or at != end or data[end - 1]:
                pos, index = _check_record(data, pos, header, index, keyed), index + 1
                continue
            if end - pos == before:
                alike = _alike(data, pos, end, delta_at, index, count)
                index += alike
                pos += alike * before
            else:
                before = end - pos
                index += 1
                pos = end
    except IndexError:
        raise Truncated(f"the records of the batch at offset {header.base_offset} are cut") from None
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} bytes too many in the batch at offset {header.base_offset}")


def _alike(data: bytes, pos: int, end: int, delta_at: int, index: int, count: int) -> int:
    """How many records from this one on, which is sound, differ from it only where records may."""
    size = end - pos
    width, below = (1, _ONE_BYTE) if index < _ONE_BYTE else (2, _TWO_BYTES)
    alike = min(below, count) - index
    alike = min(alike, (len(data) - pos) // size)
    if alike < _WORTH_COLUMNS or data[pos + size] != data[pos]:
        return 1
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
    if max(data[delta_at - 1 : stop : size]) >= 0x80:
        return 1
    for at in range(stamp_at, delta_at - 1):
        if min(data[at:stop:size]) < 0x80:
            return 1
    if width == 1:
        right = data[delta_at:stop:size] == _DELTAS[index : index + alike]
    else:
        right = (
            data[delta_at:stop:size] == _LOW[index : index + alike]
            and data[delta_at + 1 : stop : size] == _HIGH[index : index + alike]
        )
    return alike if right else 1


def _check_record(data: bytes, pos: int, header: BatchHeader, index: int, keyed: bool) -> int:
    record, pos, delta = read_record(data, pos, 0, 0, None)
    if delta != index:
        raise CorruptBatch(f"record {index} of the batch has offset delta {delta}")
    if keyed and record.key is None:
        raise Malformed(f"record {index} of the batch at offset {header.base_offset} has no key")
    return pos
