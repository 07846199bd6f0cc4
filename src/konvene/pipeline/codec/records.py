"""The records of many batches as arrays: where key, value and headers of each begin and end.

It accepts what `konvene.codec.batches.records` accepts and rejects the same batches, whose message then gives
the reason. A test compares the two on all kinds of bytes.

A record begins with its length, so one cannot be found without those before it. But the k-th records of all
batches can be found in one step: that is done while many batches have a k-th record; longer batches are then
followed one by one. Once all positions are known, the fields of all records are read at once, and only the
few multi-byte numbers need more steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from konvene.codec.batches import PREFIX_SIZE, read_header, read_record, records
from konvene.codec.errors import CodecError
from konvene.codec.varint import write_varint
from konvene.pipeline.arrays import Bools, Ints
from konvene.pipeline.codec.batches import MAX_RECORDS, Block, Bytes, Source, bad_batch

__all__ = ["Records", "parse", "unsigned", "zigzag"]

_MIN_PARALLEL_BATCHES = 96
"""With fewer batches than this, following each batch is cheaper than a step for all of them."""

_MAX_EXPLAINED_RECORDS = 20_000
"""An invalid batch with more records is not decoded again for its error message."""

_LOG_APPEND_TIME = 0x08
_ZIGZAG = np.array([n >> 1 ^ -(n & 1) for n in range(1 << 14)], np.int64)
"""The numbers that zigzag varints of up to two bytes encode."""


@dataclass(slots=True)
class Records:
    """Some records of a block as parallel arrays, in log order. Lengths are -1 where there is no key or
    value."""

    block: Block
    """The block, without batches that turned out to be bad."""
    batch: Ints
    """Index of each record's batch in the block."""
    offset: Ints
    timestamp: Ints
    key: Ints
    key_length: Ints
    value: Ints
    value_length: Ints
    headers: Ints
    """Position of each record's header count; the headers extend from it to `end`."""
    end: Ints
    last: bool
    """True for the last piece of the block."""

    def __len__(self) -> int:
        return len(self.offset)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.block!r}>"

    def only(self, rows: Ints) -> Records:
        """Return the records at these indices."""
        return Records(
            self.block, self.batch.take(rows), self.offset.take(rows), self.timestamp.take(rows),
            self.key.take(rows), self.key_length.take(rows), self.value.take(rows),
            self.value_length.take(rows), self.headers.take(rows), self.end.take(rows), self.last,
        )  # fmt: skip


def parse(block: Block, buf: Source, *, most_records: int = MAX_RECORDS) -> Iterator[Records]:
    """Yield the records of a block in log order: one piece, or several if few batches have many records.

    Batches with invalid records are moved to the block's `bad`. The last piece is marked `last`, and may be
    empty."""
    begin, end, fits = _boundaries(block)
    if not fits.all():
        block = _without(block, fits, buf)
        begin, end, fits = _boundaries(block)
    batch = np.repeat(np.arange(len(block.positions)), block.counts)
    right = np.ones(len(block.positions), bool)
    found = None
    for found, wrong in _read(block, batch, begin, end, most_records):
        right[found.batch[wrong]] = False
    if not right.all():
        yield from parse(_without(block, right, buf), buf, most_records=most_records)
    elif found is not None and len(found) == len(begin):
        yield found
    else:
        for found, _ in _read(block, batch, begin, end, most_records):
            yield found


def _read(block: Block, batch: Ints, begin: Ints, end: Ints, most: int) -> Iterator[tuple[Records, Bools]]:
    """Yield the records of the block in pieces of at most `2 * most`, each with a mask of the invalid
    ones."""
    delta, before = -1, -1
    for piece in _pieces(len(begin), most):
        if piece.start and batch[piece.start] != before:
            delta = -1
        found, wrong, delta = _fields(block, batch[piece], begin[piece], end[piece], delta)
        found.last = piece.stop >= len(begin)
        before = int(found.batch[-1]) if len(found) else -1
        yield found, wrong


def _pieces(count: int, most: int) -> list[slice]:
    if count <= 2 * most:
        return [slice(0, count)]
    return [slice(at, at + most) for at in range(0, count, most)]


def _without(block: Block, right: Bools, buf: Source) -> Block:
    """Return the block with the batches that the mask `right` selects; the others become bad ones, with the
    reason that the broker's decoder gives."""
    view = memoryview(buf)
    for i in np.flatnonzero(~right).tolist():
        position = int(block.positions[i])
        after = position + PREFIX_SIZE + int(block.headers["batch_length"][i])
        block.bad.append(bad_batch(buf, position, after, _reason(view[position:after])))
    block.bad.sort()
    return block.only(right)


def _reason(batch: memoryview) -> str:
    header = read_header(batch)
    if header.record_count > _MAX_EXPLAINED_RECORDS:
        return f"a record of the batch at offset {header.base_offset} does not fit"
    try:
        records(batch)
    except CodecError as error:
        return str(error)
    return f"a time of the batch at offset {header.base_offset} is beyond 64 bits"


# where records are --------------------------------------------------------------------------------


def _boundaries(block: Block) -> tuple[Ints, Ints, Bools]:
    """Return the begin (after its size) and end of each record, and a mask of the batches with valid
    sizes."""
    counts = block.counts
    order = np.argsort(-counts, kind="stable")
    most = counts[order]
    index = (np.cumsum(counts) - counts)[order]
    pos = block.starts[order]
    total = int(counts.sum())
    begin, end = np.zeros(total, np.int64), np.full(total, -1, np.int64)
    steps = int(most[_MIN_PARALLEL_BATCHES - 1]) if len(most) >= _MIN_PARALLEL_BATCHES else 0
    lanes = np.searchsorted(-most, -np.arange(steps), side="left").tolist()
    for step, live in enumerate(lanes):
        here, at = pos[:live], index[:live] + step
        size = zigzag(block.data, here, 5)
        begin[at] = here
        here += size
        end[at] = here
    for lane in range(int(np.searchsorted(-most, -steps, side="left"))):
        rest = slice(int(index[lane]) + steps, int(index[lane]) + int(most[lane]))
        pos[lane] = _follow(block.data, int(pos[lane]), begin[rest], end[rest])
    fits = np.empty(len(counts), bool)
    fits[order] = pos == block.ends[order]
    fits[np.repeat(np.arange(len(counts)), counts)[end < begin]] = False
    return begin, end, fits


def _follow(data: Bytes, pos: int, begin: Ints, end: Ints) -> int:
    """Find the records of one batch from `pos` on; return the end of its last record, or -1 if a size is
    invalid."""
    view = data.data
    begins, ends = array("q"), array("q")
    try:
        for _ in range(len(begin)):
            size = view[pos]
            pos += 1
            if size >= 0x80:
                shift, size = 7, size & 0x7F
                while True:
                    byte = view[pos]
                    pos += 1
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
                    if shift > 28:
                        return -1
                if size > 0xFFFFFFFF:
                    return -1
            if size & 1:
                return -1
            begins.append(pos)
            pos += size >> 1
            ends.append(pos)
    except IndexError:
        return -1
    begin[:] = np.frombuffer(begins, np.int64)
    end[:] = np.frombuffer(ends, np.int64)
    return pos


# what is in them ----------------------------------------------------------------------------------


def _fields(block: Block, batch: Ints, begin: Ints, end: Ints, carry: int) -> tuple[Records, Bools, int]:
    """Decode the records between `begin` and `end`; return them, a mask of the invalid ones, and the last
    offset delta.

    `carry` is the offset delta before the first record, -1 if that begins its batch."""
    data = block.data
    pos = begin + 1  # attributes: none are defined for a record
    wrong = np.zeros(len(pos), bool)
    time_delta = zigzag(data, pos, 10, wrong)
    delta = zigzag(data, pos, 5, wrong)
    key_length = zigzag(data, pos, 5, wrong)
    key = pos.copy()
    pos += np.maximum(key_length, 0)
    value_length = zigzag(data, pos, 5, wrong)
    value = pos.copy()
    pos += np.maximum(value_length, 0)
    wrong |= (key_length < -1) | (value_length < -1) | (pos >= end)
    headers = data.take(pos, mode="clip")
    wrong |= (headers == 0) & (pos + 1 != end)
    for i in np.flatnonzero((headers != 0) & ~wrong).tolist():
        wrong[i] = not _headers_hold(data, int(begin[i]), int(end[i]))
    before = np.empty_like(delta)
    before[1:] = delta[:-1]
    before[1:][batch[1:] != batch[:-1]] = -1
    before[:1] = carry
    wrong |= (delta <= before) | (delta > block.column("last_offset_delta")[batch])
    stamped = (block.headers["attributes"] & _LOG_APPEND_TIME != 0)[batch]
    base_time = block.column("base_timestamp")[batch]
    time = base_time + time_delta
    wrong |= ~stamped & (((base_time ^ time) & (time_delta ^ time)) < 0)
    if stamped.any():
        time = np.where(stamped, block.column("max_timestamp")[batch], time)
    offset = block.column("base_offset")[batch] + delta
    last = int(delta[-1]) if len(delta) else carry
    found = Records(block, batch, offset, time, key, key_length, value, value_length, pos, end, True)
    return found, wrong, last


def _headers_hold(data: Bytes, begin: int, end: int) -> bool:
    """Return True if the broker's decoder accepts the record.

    Called only for records with headers, which coordinators do not write."""
    try:
        read_record(write_varint(end - begin) + data[begin:end].tobytes(), 0, 0, 0, None)
    except (CodecError, IndexError):
        return False
    return True


# variable-length numbers --------------------------------------------------------------------------


def zigzag(data: Bytes, pos: Ints, most: int, wrong: Bools | None = None) -> Ints:
    """Decode zigzag varints of at most `most` bytes at `pos`, and advance `pos`.

    Invalid ones become -1 and are marked in `wrong`. Positions out of bounds read the first or last byte of
    the data instead."""
    byte = data.take(pos, mode="clip")
    pos += 1
    if byte.max(initial=0) < 0x80:
        return _ZIGZAG.take(byte)
    second = data.take(pos, mode="clip")
    if (byte & second).max() < 0x80:  # None has more than two bytes.
        continued = byte >> 7
        pos += continued
        return _ZIGZAG.take(byte + (second.astype(np.int64) - 1 << 7) * continued)
    value = _ZIGZAG.take(byte)
    many = np.flatnonzero(byte >= 0x80)
    raw, malformed = _rest(data, pos, many, byte[many], most)
    value[many] = (raw >> 1).astype(np.int64) ^ -(raw & 1).astype(np.int64)
    value[many[malformed]] = -1
    if wrong is not None:
        wrong[many[malformed]] = True
    return value


def unsigned(data: Bytes, pos: Ints, wrong: Bools) -> Ints:
    """Decode unsigned varints of at most five bytes at `pos`, and advance `pos`; invalid ones become 0."""
    if not len(data):
        wrong[:] = True
        return np.zeros(len(pos), np.int64)
    byte = data.take(pos, mode="clip")
    pos += 1
    value = byte.astype(np.int64)
    if byte.max(initial=0) >= 0x80:
        many = np.flatnonzero(byte >= 0x80)
        raw, malformed = _rest(data, pos, many, byte[many], 5)
        value[many] = np.where(malformed, 0, raw).astype(np.int64)
        wrong[many[malformed]] = True
    return value


def _rest(
    data: Bytes, pos: Ints, many: Ints, first: Bytes, most: int
) -> tuple[npt.NDArray[np.uint64], Bools]:
    """Decode the varints of several bytes, which are those at the indices `many` of `pos`.

    `first` has their first bytes, which were read already; `pos` is advanced over the others. Returns the
    values, and a mask of the invalid ones, such as those of more than `most` bytes."""
    raw = (first & 0x7F).astype(np.uint64)
    malformed = np.zeros(len(many), bool)
    live = np.arange(len(many))
    for shift in range(7, 7 * most, 7):
        at = many[live]
        byte = data.take(pos[at], mode="clip")
        pos[at] += 1
        raw[live] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if shift == 63:
            malformed[live[byte & 0x7F > 1]] = True
        live = live[byte >= 0x80]
        if not len(live):
            break
    malformed[live] = True
    if most == 5:
        malformed |= raw > 0xFFFFFFFF
    return raw, malformed
