"""The two sparse indexes of a segment, in Kafka's own formats.

The offset index (`.index`) says where in the file a batch stands: 8 bytes an entry, the
batch's last offset relative to the segment's base and its position. The time index
(`.timeindex`) says up to which offset all times are smaller: 12 bytes an entry, the
largest time so far and the relative offset of the batch that has it. Both only grow, at
their end, about every `index.interval.bytes` of log.

An index is a hint: it is derived from the log, rebuilt whenever it is missing or
implausible, and held in memory in the very bytes of its file.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from konvene.codec.batches import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">iI")
_TIME_ENTRY = struct.Struct(">qi")


class BadIndex(ValueError):
    """The file cannot be the index of its segment: rebuild it."""


class OffsetIndex:
    """Offsets to positions. `lookup` never points behind the batch one looks for."""

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
        """`BadIndex` unless offsets and positions rise and stay inside the log.

        A preallocated file ends in zeros; those are left out.
        """
        if len(data) % 8:
            raise BadIndex(f"{len(data)} bytes are no multiple of 8")
        offset, position, count = -1, -1, 0
        for relative, at in _OFFSET_ENTRY.iter_unpack(data):
            if count and relative == 0 and at == 0:
                break
            if relative < 0 or relative <= offset or at <= position or at >= log_size:
                raise BadIndex(f"entry {count} says offset {relative} at {at}")
            offset, position = relative, at
            count += 1
        return cls(base_offset, data[: count * 8])

    def append(self, offset: int, position: int) -> None:
        self.data += _OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that has `offset`, at most about one interval before."""
        if not self.data:
            return 0
        slot = bisect_right(range(len(self)), offset - self.base_offset, key=self._offset_at)
        return self._position_at(slot - 1) if slot else 0

    def batch_before(self, position: int) -> int:
        """The position of some batch at or before `position`, the nearest that is indexed."""
        if not self.data:
            return 0
        slot = bisect_right(range(len(self)), position, key=self._position_at)
        return self._position_at(slot - 1) if slot else 0

    def truncate(self, position: int) -> None:
        """Forget entries of batches at or behind `position`."""
        slot = bisect_right(range(len(self)), position - 1, key=self._position_at)
        del self.data[slot * 8 :]

    def _offset_at(self, slot: int) -> int:
        relative: int = _OFFSET_ENTRY.unpack_from(self.data, slot * 8)[0]
        return relative

    def _position_at(self, slot: int) -> int:
        position: int = _OFFSET_ENTRY.unpack_from(self.data, slot * 8)[1]
        return position


class TimeIndex:
    """Times to offsets: the largest time so far, and the batch that has it."""

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
        """`BadIndex` unless times rise and offsets do not fall."""
        if len(data) % 12:
            raise BadIndex(f"{len(data)} bytes are no multiple of 12")
        timestamp, offset, count = NO_TIMESTAMP, -1, 0
        for time, relative in _TIME_ENTRY.iter_unpack(data):
            if time == 0 and relative == 0:
                break
            if time <= timestamp or relative < max(offset, 0):
                raise BadIndex(f"entry {count} says {time} at offset {relative}")
            timestamp, offset = time, relative
            count += 1
        return cls(base_offset, data[: count * 12])

    @property
    def last(self) -> tuple[int, int]:
        """`(time, offset)` of the last entry, or of none: (-1, base offset)."""
        if not self.data:
            return NO_TIMESTAMP, self.base_offset
        time, relative = _TIME_ENTRY.unpack_from(self.data, len(self.data) - 12)
        return time, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Note the largest time so far; nothing happens unless it is larger than the last one noted."""
        if timestamp > self.last[0]:
            self.data += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """An offset up to which all times are at most `timestamp`: the search begins there."""
        slot = bisect_right(range(len(self)), timestamp, key=self._time_at)
        if not slot:
            return self.base_offset
        relative: int = _TIME_ENTRY.unpack_from(self.data, slot * 12 - 12)[1]
        return self.base_offset + relative

    def truncate(self, offset: int) -> None:
        """Forget entries of batches that end at or behind `offset`."""
        while self.data and self.last[1] >= offset:
            del self.data[-12:]

    def _time_at(self, slot: int) -> int:
        time: int = _TIME_ENTRY.unpack_from(self.data, slot * 12)[0]
        return time
