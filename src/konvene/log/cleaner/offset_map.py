"""Maps each key to its last offset, in bounded memory.

Kafka keeps a 16-byte hash of each key and loses a record when two keys collide. This map keeps the keys
themselves: more memory, no loss. It limits its memory, counting each key's bytes object and integer, the hash
table, and the sorted list of offsets that is made when the map is complete. An entry that makes the hash
table grow must leave space for the old and the new table, because both exist for a moment.

The map is filled in offset order and then queried, never emptied. A key's value is twice its last offset,
plus one for a tombstone, so that the remaining records are known without reading them again.
"""

from __future__ import annotations

from itertools import islice
from sys import getsizeof

OFFSET_BYTES = 32
"""Bytes of an integer with 31 to 60 bits."""
SORTED_BYTES = 12
"""Bytes of a pointer in the sorted list, and half of one while it is sorted."""
_KEY_HEAD = getsizeof(b"")
_SMALL_OBJECT = 512
_ALIGN = 16
MOST_BESIDE = _KEY_HEAD + 8 + _ALIGN + OFFSET_BYTES + SORTED_BYTES
"""Maximum bytes of an entry without the key's own bytes and the table."""


def key_bytes(length: int) -> int:
    """Return the memory (bytes) of a `bytes` object of this length."""
    size = _KEY_HEAD + length
    if size > _SMALL_OBJECT:
        size += 8
    return (size + _ALIGN - 1) & -_ALIGN


class OffsetMap:
    """A map from keys to last offsets, complete for all records up to `latest_offset`."""

    __slots__ = ("_bytes", "_grows_at", "_table", "entries", "latest_offset", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.entries: dict[bytes, int] = {}
        """Twice the last offset of each key, plus one for a tombstone. After writing here, call `count_new`.
        """
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
    def free_space(self) -> tuple[int, int]:
        """`(number of keys above which the hash table grows, bytes left within the memory limit)`."""
        return self._grows_at, self.max_bytes - self._bytes - self._table

    @property
    def utilization(self) -> float:
        """Used share of the memory limit, from 0 to 1."""
        return min(1.0, self.used_bytes / self.max_bytes) if self.max_bytes > 0 else 1.0

    def get(self, key: bytes) -> int:
        """Return the last offset of a key, or -1 if the map does not have it."""
        found = self.entries.get(key)
        return -1 if found is None else found >> 1

    def put(self, key: bytes, offset: int, tombstone: bool = False) -> bool:
        """Store the last offset of a key; return False if the map is full. The first key is always accepted.

        As in Kafka, a full map also rejects a key that it has: the next cleaning begins with this record.
        """
        if self.entries and not self.fits(1, len(key)):
            return False
        known = len(self.entries)
        self.entries[key] = offset << 1 | tombstone
        self.count_new(known)
        self.latest_offset = offset
        return True

    def fits(self, keys: int, size: int) -> bool:
        """Return True if this many new keys, of `size` bytes in total, fit into the memory limit."""
        most = self._bytes + self._table + keys * MOST_BESIDE + size
        if len(self.entries) + keys > self._grows_at:
            most += _table_bytes(len(self.entries) + keys)
        return most <= self.max_bytes

    def count_new(self, known: int) -> None:
        """Add the memory of new keys to the used memory, after a caller has put them into `entries` directly.

        `known` is the number of keys that the map had before.
        """
        new = len(self.entries) - known
        if new:
            keys = islice(reversed(self.entries), new)
            self._bytes += sum(map(key_bytes, map(len, keys))) + new * (OFFSET_BYTES + SORTED_BYTES)
            self._table = getsizeof(self.entries)
            if len(self.entries) > self._grows_at:
                self._grows_at = _capacity(len(self.entries)) * 2 // 3

    def sorted_values(self) -> list[int]:
        """Return all values, ascending: twice the offset, plus one for a tombstone."""
        return sorted(self.entries.values())


def _capacity(keys: int) -> int:
    """Return the number of slots of a hash table with this many keys; a third of them stays free."""
    places = 8
    while places * 2 // 3 < keys:
        places *= 2
    return places


def _table_bytes(keys: int) -> int:
    """Return the memory (bytes) of a dict's hash table: 24 bytes for each key that fits, and an index of one
    to four bytes for each slot."""
    places = _capacity(keys)
    wide = 1 if places <= 1 << 8 else 2 if places <= 1 << 16 else 4
    return places * wide + places * 2 // 3 * 24 + 100
