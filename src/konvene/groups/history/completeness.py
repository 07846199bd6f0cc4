"""Find out where records of a partition of `__consumer_offsets` may be missing, without I/O.

Records may be missing where offsets are, and after that until a key is read twice: the compacted part of a
log has each key once, so it has ended there, and the state that was read is the state that the groups had.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Completeness", "KnownCompleteness"]


class Completeness:
    """Detector of missing records; it is passed the batches of a log and the keys of its records."""

    def __init__(self) -> None:
        self._keys: set[Hashable] | None = None

    def __repr__(self) -> str:
        return "<complete>" if self.complete else "<incomplete>"

    @property
    def complete(self) -> bool:
        """Return whether no record before this point can be missing."""
        return self._keys is None

    def is_gap(self, previous: int, base_offset: int, last_offset: int, count: int) -> bool:
        """Return whether records are missing in a batch of `count` records, or between it and the last offset
        of the `previous` batch."""
        return base_offset != previous + 1 or last_offset - base_offset + 1 != count

    def gap(self) -> None:
        """Called where records may be missing before this point."""
        self._keys = set()

    def restore(self) -> None:
        """Called where the log is known to be complete again."""
        self._keys = None

    def note(self, key: Hashable) -> bool:
        """Note the key of the record that is read now; return whether the log is complete again with it."""
        if self._keys is None:
            return False
        if key in self._keys:
            self.restore()
            return True
        self._keys.add(key)
        return False


class KnownCompleteness(Completeness):
    """Completeness of a log of which only some groups are read: the caller knows it, and calls `gap`,
    `restore` and `restore_with_next_key`."""

    def __init__(self) -> None:
        super().__init__()
        self._with_next_key = False

    def is_gap(self, previous: int, base_offset: int, last_offset: int, count: int) -> bool:
        return False

    def restore_with_next_key(self) -> None:
        """Called before the record whose key was read before."""
        self._with_next_key = True

    def note(self, key: Hashable) -> bool:
        restored, self._with_next_key = self._with_next_key, False
        if restored:
            self.restore()
        return restored
