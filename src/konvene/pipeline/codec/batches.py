"""Walks the batches of a log, past any damage.

A walk starts at a batch boundary and yields blocks of complete, valid batches: checksum and lengths are
right, offsets rise, and compressed batches are decompressed. Everything else becomes a `Bad`. After a bad
batch the walk continues where its length leads to a plausible batch; otherwise it searches for the next batch
with a right checksum, at a bounded cost for any input. If there is none, the rest is bad.

A batch that is cut off by the end of the buffer is not damage: a broker may be writing it. The walk ends
before it, and `next_position` is where to continue. The same holds for zeros, as in a preallocated file.

The loop spends about a microsecond of Python per batch. The contents of batches are not read here.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from konvene.codec.batches import HEADER_SIZE, PREFIX_SIZE
from konvene.codec.compression import DEFAULT_LIMIT, decompress
from konvene.codec.errors import CodecError
from konvene.pipeline.arrays import Bools, Ints

__all__ = [
    "HEADER",
    "MAX_BYTES",
    "MAX_RECORDS",
    "Bad",
    "Block",
    "Bytes",
    "Headers",
    "Source",
    "headers",
    "headers_at",
    "walk",
]

Source = bytes | bytearray | memoryview | mmap.mmap
Bytes = npt.NDArray[np.uint8]
Headers = npt.NDArray[np.void]
"""An array of the type `HEADER`."""

HEADER = np.dtype(
    [
        ("base_offset", ">i8"), ("batch_length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"),
        ("crc", ">u4"), ("attributes", ">i2"), ("last_offset_delta", ">i4"), ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"), ("producer_id", ">i8"), ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"), ("record_count", ">i4"),
    ]
)  # fmt: skip
"""Numpy layout of `konvene.codec.batches.BatchHeader`, for decoding many headers at once."""

MAX_RECORDS = 32_768
"""Number of records at which a block ends."""

MAX_BYTES = 16 << 20
"""Number of bytes, stored or decompressed, at which a block ends; a larger batch is a block of its own."""

MAX_BAD = 1000
"""Number of bad batches at which a block ends."""

MAX_QUARANTINED_BYTES = 1024
"""Number of bytes of a bad batch that the quarantine keeps."""

MIN_RECORD_BYTES = 7
"""Minimum size of a record: size, attributes, two deltas, two lengths and the number of headers."""

_FRONT = struct.Struct(">8xi4xbIh34xi")  # length, magic, checksum, attributes, count
_COVERED_AT = 21
_MAGIC_AT = 16
_SHORTEST = HEADER_SIZE - PREFIX_SIZE
_WINDOW = 1 << 16
_MAX_OFFSET = np.iinfo(np.int64).max


class Bad(NamedTuple):
    """A range of bytes that is no valid batch, with the reason. `offset` is its base offset, -1 if that is
    unknown."""

    position: int
    length: int
    offset: int
    reason: str
    head: bytes


@dataclass(slots=True)
class Block:
    """Complete batches of a buffer; `data[starts[i]:ends[i]]` has the records of the i-th batch."""

    data: Bytes
    positions: Ints
    """Position of each batch in the buffer."""
    headers: Headers
    starts: Ints
    ends: Ints
    next_position: int
    """Position at which to continue: everything before it is in this block or an earlier one, or is bad."""
    bad: list[Bad] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{len(self.positions)} batches up to {self.next_position}, {len(self.bad)} bad>"

    @property
    def counts(self) -> Ints:
        return self.headers["record_count"].astype(np.int64)

    def column(self, name: str) -> Ints:
        """Return a field of the headers, in native byte order."""
        return self.headers[name].astype(np.int64)

    def only(self, kept: Bools) -> Block:
        """Return the block with only the batches that the mask `kept` selects."""
        return Block(
            self.data, self.positions[kept], self.headers[kept], self.starts[kept], self.ends[kept],
            self.next_position, self.bad,
        )  # fmt: skip


def walk(
    buf: Source,
    position: int = 0,
    end: int | None = None,
    *,
    most_records: int = MAX_RECORDS,
    most_bytes: int = MAX_BYTES,
    limit: int = DEFAULT_LIMIT,
    last_offset: int = -1,
) -> Iterator[Block]:
    """Yield the batches that begin in `buf[position:end]`; the last of them may reach beyond `end`.

    A block ends with the batch that reaches `most_records` or `most_bytes`. A batch is bad if it decompresses
    to more than `limit` bytes, or begins at or before `last_offset`, the last one of an earlier walk."""
    walker = _Walker(memoryview(buf), position, end, limit, last_offset)
    while not walker.done:
        block = walker.block(most_records, most_bytes)
        if len(block.positions) or block.bad:
            yield block


def headers(buf: Source, position: int = 0, end: int | None = None, *, most: int) -> Iterator[Headers]:
    """Yield the headers of the batches that begin in `buf[position:end]`, `most` at a time, without reading
    the batches.

    A header is accepted if its values are plausible and its length leads to another plausible header or to
    the end."""
    walker = _Walker(memoryview(buf), position, end, DEFAULT_LIMIT)
    while not walker.done:
        found = headers_at(walker.view, np.array(walker.follow_lengths(most), np.int64))
        found = found[_are_plausible(found)]
        yield found[~walker.out_of_order(found)]


def headers_at(buf: Source, positions: Ints) -> Headers:
    """Return the headers at these positions, as an array of type `HEADER`."""
    if not len(positions):
        return np.empty(0, HEADER)
    every = np.ndarray((len(buf) - HEADER_SIZE + 1,), HEADER, buffer=buf, strides=(1,))
    return every[positions]


class _Walker:
    """The state of a walk over a buffer.

    `work` is the remaining budget for searching, in bytes; `last` is the last offset of the batches so
    far."""

    def __init__(self, view: memoryview, position: int, end: int | None, limit: int, last: int = -1) -> None:
        self.view = view
        self.total = len(view)
        self.stop = self.total if end is None else min(end, self.total)
        self.pos = position
        self.limit = limit
        self.done = position >= self.stop
        self.work = 4 * self.total
        self.last = last

    def block(self, most_records: int, most_bytes: int) -> Block:
        """Return the next batches, up to `most_records` and `most_bytes`. Costs about a microsecond per
        batch."""
        view, total, pos = self.view, self.total, self.pos
        bodies: dict[int, bytes] = {}
        positions: list[int] = []
        bad: list[Bad] = []
        records = 0
        edge = min(self.stop, total - HEADER_SIZE + 1, pos + most_bytes)
        read, checksum, keep, limit = _FRONT.unpack_from, crc32c, positions.append, self.limit
        while pos < edge:
            length, magic, crc, attributes, count = read(view, pos)
            after = pos + PREFIX_SIZE + length
            if magic != 2 or length < 49 or after > total or checksum(view[pos + 21 : after]) != crc:
                pos = self._skip_invalid(pos, bad)
                if self.done or len(bad) >= MAX_BAD:
                    break
                continue
            if attributes & 7 or length > limit:
                try:
                    body = bodies[len(positions)] = self._body(pos, after, attributes, count)
                    edge -= len(body)
                except CodecError as error:
                    bad.append(self._bad(pos, after, str(error)))
                    pos = after
                    if len(bad) >= MAX_BAD:
                        break
                    continue
            keep(pos)
            pos = after
            records += count if count > 0 else 1
            if records >= most_records:
                break
        self.pos = pos
        self.done = self.done or pos >= self.stop or total - pos < HEADER_SIZE
        return self._block_of(positions, bodies, bad)

    def follow_lengths(self, most: int) -> list[int]:
        """Return the positions of the next batches, following their lengths without verifying checksums."""
        read, total, stop, pos = _FRONT.unpack_from, self.total, self.stop, self.pos
        positions: list[int] = []
        while pos < stop and len(positions) < most:
            if total - pos < HEADER_SIZE:
                self.done = True
                break
            length, magic, *_ = read(self.view, pos)
            after = pos + PREFIX_SIZE + length
            if magic != 2 or length < _SHORTEST or after > total or not self._spans(pos, after):
                pos = self._skip_invalid(pos, [])
                if self.done:
                    break
                continue
            positions.append(pos)
            pos = after
        self.pos = pos
        self.done = self.done or pos >= stop
        return positions

    def __repr__(self) -> str:
        return f"<walk at {self.pos} of {self.total}>"

    def _body(self, pos: int, after: int, attributes: int, count: int) -> bytes:
        body = self.view[pos + HEADER_SIZE : after]
        if count == 0 and not body:
            return b""
        return decompress(attributes & 7, body, self.limit)

    def _block_of(self, positions: list[int], bodies: dict[int, bytes], bad: list[Bad]) -> Block:
        at = np.array(positions, np.int64)
        headers = headers_at(self.view, at)
        starts = at + HEADER_SIZE
        ends = at + PREFIX_SIZE + headers["batch_length"]
        if bodies:
            parts = [
                bodies[i] if i in bodies else self.view[s:e]
                for i, (s, e) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
            ]
            data = np.frombuffer(b"".join(parts), np.uint8)
            ends = np.cumsum([len(part) for part in parts])
            starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        elif positions:
            first, last = positions[0], int(ends[-1])
            data = np.frombuffer(self.view[first:last], np.uint8)
            starts, ends = starts - first, ends - first
        else:
            data = np.empty(0, np.uint8)
        block = Block(data, at, headers, starts, ends, self.pos, bad)
        return self._with_sane_headers(block)

    def _with_sane_headers(self, block: Block) -> Block:
        """Return the block without batches that have impossible header values or are out of order; they
        become bad ones."""
        base, delta, count = (block.column(n) for n in ("base_offset", "last_offset_delta", "record_count"))
        size = block.ends - block.starts
        wrong = (base < 0) | (count < 0) | (count > delta + 1) | (base > _MAX_OFFSET - delta)
        crowded = (count * MIN_RECORD_BYTES > size) | ((count == 0) & (size > 0))
        if (wrong | crowded).any():
            descriptions = [
                f"the batch at offset {b} counts {c} records" for b, c in zip(base, count, strict=True)
            ]
            reasons = np.where(
                wrong,
                [f"{t} up to {d} beyond its first" for t, d in zip(descriptions, delta, strict=True)],
                [f"{t} in {n} bytes" for t, n in zip(descriptions, size, strict=True)],
            )
            block = self._without(block, wrong | crowded, reasons)
        out_of_order = self.out_of_order(block.headers)
        if out_of_order.any():
            reasons = np.array(
                [f"the batch at offset {b} is out of order" for b in block.column("base_offset")]
            )
            block = self._without(block, out_of_order, reasons)
        return block

    def _without(self, block: Block, wrong: Bools, reasons: npt.NDArray[np.str_]) -> Block:
        for i in np.flatnonzero(wrong).tolist():
            position = int(block.positions[i])
            after = position + PREFIX_SIZE + int(block.headers["batch_length"][i])
            block.bad.append(self._bad(position, after, str(reasons[i])))
        block.bad.sort()
        return block.only(~wrong)

    def out_of_order(self, found: Headers) -> Bools:
        """Return a mask of the batches that are out of offset order, which the checksum does not cover.

        If the batch after a jump continues the offsets before it, the batch that jumped ahead is out of
        order; otherwise the batch that goes back is."""
        if not len(found):
            return np.zeros(0, bool)
        base = found["base_offset"].astype(np.int64)
        last = base + found["last_offset_delta"]
        before = np.concatenate([[self.last], last[:-1]])
        after = np.append(base[1:], self._base_at(self.pos))
        ahead = (after <= last) & (after > before) & (base != before + 1)
        reach = np.maximum.accumulate(np.where(ahead, self.last, np.maximum(last, self.last)))
        astray: Bools = ahead | (base <= np.concatenate([[self.last], reach[:-1]]))
        self.last = int(reach[-1])
        return astray

    def _base_at(self, at: int) -> int:
        """Return the base offset of the next valid batch from `at` on, or a value beyond all offsets if there
        is none."""
        if self.total - at < HEADER_SIZE:
            return int(_MAX_OFFSET)
        length, magic, crc, *_ = _FRONT.unpack_from(self.view, at)
        after = at + PREFIX_SIZE + length
        fits = magic == 2 and length >= _SHORTEST and after <= self.total
        if not (fits and crc32c(self.view[at + _COVERED_AT : after]) == crc):
            at = self._search(at + 1)
        return int.from_bytes(self.view[at : at + 8], "big", signed=True) if at >= 0 else int(_MAX_OFFSET)

    # what to do where there is no sound batch ----------------------------------------------------

    def _skip_invalid(self, pos: int, bad: list[Bad]) -> int:
        """Add the invalid bytes at `pos` to `bad`, and return the position to continue from; sets `done` if
        there is none."""
        length, magic, *_ = _FRONT.unpack_from(self.view, pos)
        after: int = pos + PREFIX_SIZE + length
        cut = after > self.total and magic == 2
        if magic in (0, 1) and length > 0 and self._plausible(after, magic):
            bad.append(self._bad(pos, after, f"magic {magic}: only batches of magic 2 are known"))
            return after
        if magic != 2:
            reason = f"magic {magic}: there is no batch"
        elif length < _SHORTEST:
            reason = f"a batch of {length} bytes is shorter than its header"
        elif cut:
            reason = f"a batch of {length} bytes is longer than the log"
        else:
            reason = "the checksum of the batch does not hold"
            if self._plausible(after):
                bad.append(self._bad(pos, after, reason))
                return after
        found = self._search(pos + 1)
        if found < 0 and self.stop == self.total and (cut or not self._any_nonzero(pos)):
            self.done = True
            return pos
        if found < 0:
            self.done, found = True, self.stop
        bad.append(self._bad(pos, found, reason))
        return found

    def _spans(self, pos: int, after: int) -> bool:
        """Return True if a batch spans `pos` to `after`, judged by the bytes after it or else by its
        checksum."""
        if after >= self.stop or self._plausible(after):
            return True
        crc: int = _FRONT.unpack_from(self.view, pos)[2]
        return bool(crc32c(self.view[pos + _COVERED_AT : after]) == crc)

    def _plausible(self, at: int, magic: int = 2) -> bool:
        """Return True if a batch of at least this magic can begin at `at`, or if the log ends there."""
        if at >= self.total - _MAGIC_AT:
            return at <= self.total
        if not magic <= self.view[at + _MAGIC_AT] <= 2 or self.view[at] > 0x7F:
            return False
        return int.from_bytes(self.view[at + 8 : at + 12], "big") in range(14, 1 << 31)

    def _any_nonzero(self, pos: int) -> bool:
        """Return True if any byte from `pos` on is not zero: zeros are the rest of a preallocated file."""
        return any(
            np.frombuffer(self.view[at : at + _WINDOW], np.uint8).any()
            for at in range(pos, self.total, _WINDOW)
        )

    def _search(self, at: int) -> int:
        """Return the next position before `stop` of a batch with a valid checksum; -1 if there is none."""
        while at < self.stop and self.total - at >= HEADER_SIZE:
            until = min(at + _WINDOW, self.stop, self.total - HEADER_SIZE + 1)
            here = np.frombuffer(self.view[at + _MAGIC_AT : until + _MAGIC_AT], np.uint8)
            candidates = np.flatnonzero(here == 2) + at
            found = headers_at(self.view, candidates)
            length = found["batch_length"]
            plausible = _are_plausible(found) & (length <= self.total - candidates - PREFIX_SIZE)
            for i in np.flatnonzero(plausible).tolist():
                place, size = int(candidates[i]), int(length[i])
                self.work -= size + HEADER_SIZE
                if self.work < 0:
                    return -1
                covered = self.view[place + _COVERED_AT : place + PREFIX_SIZE + size]
                if crc32c(covered) == found["crc"][i]:
                    return place
            at = until
        return -1

    def _bad(self, pos: int, after: int, reason: str) -> Bad:
        return bad_batch(self.view, pos, after, reason)


def _are_plausible(found: Headers) -> Bools:
    """Return a mask of the headers whose values are plausible."""
    base, count = found["base_offset"], found["record_count"]
    delta = found["last_offset_delta"].astype(np.int64)
    plausible: Bools = (
        (found["magic"] == 2)
        & (found["batch_length"] >= _SHORTEST)
        & (found["attributes"] >= 0)
        & (found["attributes"] <= 0x7F)
        & (base >= 0)
        & (base <= _MAX_OFFSET - np.maximum(delta, 0) - 1)
        & (count >= 0)
        & (count <= delta + 1)
    )
    return plausible


def bad_batch(buf: Source, pos: int, after: int, reason: str) -> Bad:
    """Describe the invalid bytes from `pos` to `after`, with a copy of the first ones for the quarantine."""
    head = bytes(memoryview(buf)[pos : min(after, pos + MAX_QUARANTINED_BYTES)])
    offset = int.from_bytes(head[:8], "big", signed=True) if len(head) >= 8 else -1
    return Bad(pos, after - pos, max(offset, -1), reason, head)
