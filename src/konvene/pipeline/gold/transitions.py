"""Where the history of a log partition becomes incomplete, and complete again.

The reducer of one bucket reads the records of some groups, but whether records are missing, and where the
compacted part of the log ends, only all records show. So for a log in which that may happen it is found out
beforehand, once for all buckets (`find`), and applied between the records of each (`Replay`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.groups.history.completeness import Completeness
from konvene.groups.history.reader import NOTED_KEYS
from konvene.pipeline.ingest.offset_spans import WHOLE, Span
from konvene.pipeline.reduce.reducer import REDUCED_TYPES
from konvene.records.coordinator import GROUP_RECORDS, value_version

__all__ = ["Completable", "Observer", "Replay", "Transition", "may_be_incomplete"]

_NOTED = frozenset(code for code, kind in GROUP_RECORDS.items() if kind.key in NOTED_KEYS)


class Transition(NamedTuple):
    """A place at which the history becomes incomplete or complete: the offset of a record, or the first
    offset of a batch."""

    offset: int
    complete: bool


class Completable(Protocol):
    """What `Replay` needs of a reducer."""

    def batch(self, base_offset: int, last_offset: int, count: int) -> None: ...
    def gap(self) -> None: ...
    def restore(self) -> None: ...
    def restore_with_next(self) -> None: ...


def may_be_incomplete(spans: Iterable[Span]) -> bool:
    """Return False if these spans have all offsets from 0 on."""
    ends = -1
    for span in spans:
        if span.first != ends + 1 or span.kind != WHOLE:
            return True
        ends = span.last
    return False


class Observer:
    """Finds the transitions of a log; it is passed the batches and records of all groups, like a reducer.

    `unreadable`: offsets of the records that may not be readable."""

    def __init__(self, unreadable: frozenset[int]) -> None:
        self.found: list[Transition] = []
        self._unreadable = unreadable
        self._completeness = Completeness()
        self._begins = self._ends = -1

    def __repr__(self) -> str:
        return f"<{len(self.found)} transitions up to offset {self._ends}>"

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        if base_offset == self._begins:
            return
        if self._completeness.is_gap(self._ends, base_offset, last_offset, count):
            self._gap(base_offset)
        self._begins, self._ends = base_offset, last_offset

    def take(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        kind = -1 if key is None or len(key) < 2 else int.from_bytes(key[:2], "big")
        if offset in self._unreadable and not _is_readable(kind, key or b"", value):
            self._gap(offset)
        elif kind in _NOTED and self._completeness.note(key):
            self.found.append(Transition(offset, True))

    def _gap(self, offset: int) -> None:
        if self._completeness.complete:
            self.found.append(Transition(offset, False))
        self._completeness.gap()


def _is_readable(code: int, key: bytes, value: bytes | None) -> bool:
    """Return whether a record can be decoded, or has a type that is not reduced."""
    kind = REDUCED_TYPES.get(code)
    if kind is None:
        return True
    try:
        decode(kind.key, 0, key, 2)
        if value is not None:
            decode(kind.value, value_version(kind, value), value, 2)
    except CodecError:
        return False
    return True


class Replay:
    """Applies known transitions to a reducer between the records that it is passed."""

    def __init__(self, transitions: Iterable[Transition], reducer: Completable, applied: int = 0) -> None:
        self._transitions = list(transitions)
        self._reducer = reducer
        self.applied = applied
        """Number of transitions applied so far."""

    def __repr__(self) -> str:
        return f"<{self.applied} of {len(self._transitions)} transitions applied>"

    def before_batch(self, base_offset: int, ends: int) -> None:
        """Apply the transitions up to the next batch; `ends` is the last offset of the one before it.

        If there are any, the stretch between these batches is a batch of its own."""
        if self.applied == len(self._transitions):
            return
        self._upto(ends + 1)
        if self.applied == len(self._transitions) or self._transitions[self.applied].offset >= base_offset:
            return
        if base_offset > ends + 1:
            self._reducer.batch(ends + 1, base_offset - 1, base_offset - ends - 1)
        self._upto(base_offset)

    def before_record(self, offset: int) -> None:
        """Apply the transitions up to the record at this offset, which is passed to the reducer next."""
        if self.applied == len(self._transitions):
            return
        self._upto(offset)
        if self.applied < len(self._transitions) and self._transitions[self.applied].offset == offset:
            if self._transitions[self.applied].complete:
                self._reducer.restore_with_next()
            else:
                self._reducer.gap()
            self.applied += 1

    def finish(self, ends: int) -> None:
        """Apply the transitions after the last record; `ends` is the last offset of its batch."""
        if self.applied < len(self._transitions):
            self.before_batch(self._transitions[-1].offset + 1, ends)

    def _upto(self, offset: int) -> None:
        while self.applied < len(self._transitions) and self._transitions[self.applied].offset < offset:
            transition = self._transitions[self.applied]
            (self._reducer.restore if transition.complete else self._reducer.gap)()
            self.applied += 1
