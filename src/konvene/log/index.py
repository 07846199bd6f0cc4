"""The offset index and the time index of a segment, in Kafka's formats.

The offset index (`.index`) maps offsets to file positions: 8 bytes for each entry, a batch's last offset
relative to the base offset and its position. The time index (`.timeindex`) maps the largest timestamp so far
to the offset of its batch: 12 bytes for each entry. Both grow only at the end, about once per
`index.interval.bytes` of log.

An index is derived data: it is rebuilt whenever it is missing or implausible, and held in memory in its file
format.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from konvene.codec.batches import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">iI")
_TIME_ENTRY = struct.Struct(">qi")


class BadIndex(ValueError):
    """The file is not a valid index of its segment, and the index has to be rebuilt."""


class OffsetIndex:
    """An index from offsets to positions; a lookup may return an earlier position, but never a later one."""

    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // 8

    def __repr__(self) -> str:
        return f"OffsetIndex({self.base_offset}, {len(self)} entries)"

    @classmethod
    def load(cls, base_offset: int, data: bytes, log_size: int) -> OffsetIndex:
        """Decode an index file of a log of `log_size` bytes.

        Raises `BadIndex` unless offsets and positions ascend and all positions are inside the log. Trailing
        zeros of a preallocated file are ignored.
        """
        if len(data) % 8:
            raise BadIndex(f"{len(data)} bytes are no multiple of 8")
        offset, position, count = -1, -1, 0
        for relative, at in _OFFSET_ENTRY.iter_unpack(data):
            if count and relative == 0 and at == 0:
                break
            if relative < 0 or relative <= offset or at <= position or at >= log_size:
                raise BadIndex(f"entry {count} has offset {relative} at position {at}")
            offset, position = relative, at
            count += 1
        return cls(base_offset, data[: count * 8])

    def append(self, offset: int, position: int) -> None:
        self.data += _OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before `offset`; 0 without one."""
        if not self.data:
            return 0
        slot = bisect_right(range(len(self)), offset - self.base_offset, key=self._offset_at)
        return self._position_at(slot - 1) if slot else 0

    def batch_before(self, position: int) -> int:
        """Return the nearest indexed batch position at or before `position`."""
        if not self.data:
            return 0
        slot = bisect_right(range(len(self)), position, key=self._position_at)
        return self._position_at(slot - 1) if slot else 0

    def truncate(self, position: int) -> None:
        """Remove entries of batches at or after `position`."""
        slot = bisect_right(range(len(self)), position - 1, key=self._position_at)
        del self.data[slot * 8 :]

    def _offset_at(self, slot: int) -> int:
        relative: int = _OFFSET_ENTRY.unpack_from(self.data, slot * 8)[0]
        return relative

    def _position_at(self, slot: int) -> int:
        position: int = _OFFSET_ENTRY.unpack_from(self.data, slot * 8)[1]
        return position


class TimeIndex:
    """An index from timestamps to offsets: each entry is the largest timestamp so far and its offset."""

    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // 12

    def __repr__(self) -> str:
        return f"TimeIndex({self.base_offset}, {len(self)} entries)"

    @classmethod
    def load(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Decode an index file. Raises `BadIndex` unless timestamps ascend and offsets do not descend."""
        if len(data) % 12:
            raise BadIndex(f"{len(data)} bytes are no multiple of 12")
        timestamp, offset, count = NO_TIMESTAMP, -1, 0
        for time, relative in _TIME_ENTRY.iter_unpack(data):
            if time == 0 and relative == 0:
                break
            if time <= timestamp or relative < max(offset, 0):
                raise BadIndex(f"entry {count} has timestamp {time} at offset {relative}")
            timestamp, offset = time, relative
            count += 1
        return cls(base_offset, data[: count * 12])

    @property
    def last(self) -> tuple[int, int]:
        """`(timestamp, offset)` of the last entry; (-1, base offset) if there is none."""
        if not self.data:
            return NO_TIMESTAMP, self.base_offset
        time, relative = _TIME_ENTRY.unpack_from(self.data, len(self.data) - 12)
        return time, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is greater than that of the last entry."""
        if timestamp > self.last[0]:
            self.data += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """Return an offset to start a search at: no record before it has a timestamp above `timestamp`."""
        slot = bisect_right(range(len(self)), timestamp, key=self._time_at)
        if not slot:
            return self.base_offset
        relative: int = _TIME_ENTRY.unpack_from(self.data, slot * 12 - 12)[1]
        return self.base_offset + relative

    def truncate(self, offset: int) -> None:
        """Remove entries of batches that end at or after `offset`."""
        while self.data and self.last[1] >= offset:
            del self.data[-12:]

    def _time_at(self, slot: int) -> int:
        time: int = _TIME_ENTRY.unpack_from(self.data, slot * 12)[0]
        return time
