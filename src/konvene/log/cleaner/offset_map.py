"""The last offset of each key, in bounded memory.

Kafka keeps a hash of 16 bytes of each key, and where two keys have the same one a record is lost. This one
keeps the keys themselves, so it takes more memory and loses nothing. It knows what it takes: of each key
the object that holds its bytes and the number beside it, the table that finds it, and a place in the list
of offsets that is sorted when the map is complete. Before the table grows it counts the old one and the new
one, since for a moment both are there.

A map is filled in the order of offsets and then asked, never emptied. What it holds for a key is twice its
last offset, and one more where that record is a tombstone: so the records that stay are known without being
read again.
"""

from __future__ import annotations

from itertools import islice
from sys import getsizeof

OFFSET_BYTES = 32
"""An integer of more than 30 and at most 60 bits."""
SORTED_BYTES = 12
"""A pointer in the sorted list, and half of one while it is sorted."""
_KEY_HEAD = getsizeof(b"")
_SMALL_OBJECT = 512
_ALIGN = 16
MOST_BESIDE = _KEY_HEAD + 8 + _ALIGN + OFFSET_BYTES + SORTED_BYTES
"""What a key takes at most beside its own bytes, without the table."""


def key_bytes(length: int) -> int:
    """What an object with so many bytes takes."""
    size = _KEY_HEAD + length
    if size > _SMALL_OBJECT:
        size += 8
    return (size + _ALIGN - 1) & -_ALIGN


class OffsetMap:
    """Keys and their last offsets. `latest_offset`: up to there every record has been taken, or passed
    over."""

    __slots__ = ("_bytes", "_grows_at", "_table", "entries", "latest_offset", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.entries: dict[bytes, int] = {}
        """Of each key twice the last offset, plus one for a tombstone. Who writes here calls `count_new`."""
        self.latest_offset = -1
        self._bytes = 0
        self._table = getsizeof(self.entries)
        self._grows_at = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"OffsetMap({len(self)} keys up to {self.latest_offset}, {self.used_bytes} bytes)"

    @property
    def used_bytes(self) -> int:
        return self._bytes + self._table

    @property
    def room(self) -> tuple[int, int]:
        """So many keys it may hold before its table grows, and so many bytes are left for them."""
        return self._grows_at, self.max_bytes - self._bytes - self._table

    @property
    def utilization(self) -> float:
        """Of what it may take, from 0 to 1."""
        return min(1.0, self.used_bytes / self.max_bytes) if self.max_bytes > 0 else 1.0

    def get(self, key: bytes) -> int:
        """The last offset of a key, or -1."""
        found = self.entries.get(key)
        return -1 if found is None else found >> 1

    def put(self, key: bytes, offset: int, tombstone: bool = False) -> bool:
        """Take the last offset of a key, or say that it is full. The first key is always taken.

        As in Kafka a full map refuses known keys as well: what is behind is for the next cleaning."""
        if self.entries and not self.has_room(1, len(key)):
            return False
        known = len(self.entries)
        self.entries[key] = offset << 1 | tombstone
        self.count_new(known)
        self.latest_offset = offset
        return True

    def has_room(self, keys: int, size: int) -> bool:
        """Whether so many keys, with so many bytes together, may all be new."""
        most = self._bytes + self._table + keys * MOST_BESIDE + size
        if len(self.entries) + keys > self._grows_at:
            most += _table_bytes(len(self.entries) + keys)
        return most <= self.max_bytes

    def count_new(self, known: int) -> None:
        """Count the keys that came in since there were so many."""
        new = len(self.entries) - known
        if new:
            keys = islice(reversed(self.entries), new)
            self._bytes += sum(map(key_bytes, map(len, keys))) + new * (OFFSET_BYTES + SORTED_BYTES)
            self._table = getsizeof(self.entries)
            if len(self.entries) > self._grows_at:
                self._grows_at = _capacity(len(self.entries)) * 2 // 3

    def sorted_last(self) -> list[int]:
        """All that it holds, in the order of offsets: twice the offset, plus one for a tombstone."""
        return sorted(self.entries.values())


def _capacity(keys: int) -> int:
    """The places that a table has which holds so many keys: a third of them stays free."""
    places = 8
    while places * 2 // 3 < keys:
        places *= 2
    return places


def _table_bytes(keys: int) -> int:
    """What a table takes that holds so many keys: three words a key, and an index of one to four bytes."""
    places = _capacity(keys)
    wide = 1 if places <= 1 << 8 else 2 if places <= 1 << 16 else 4
    return places * wide + places * 2 // 3 * 24 + 100
