"""State of one share partition while its log is read, and what each record adds to it. Pure.

The state after each record is the one that a share coordinator has then (`konvene.share_state`). The code
here compares it with the state before and counts the difference: a delivery whenever an offset's count grows,
an acknowledgement whenever an offset reaches that state, and so on. A snapshot that repeats known state adds
nothing. One with another state epoch, or whose start lies before the known one, restarts the history; earlier
counts are kept.

Snapshots are numbered, and the first one of a state is 0. If one of them is missing, or an update comes
before any, records before it are missing; the state is known again with the next snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from konvene.records.share_state import ShareSnapshotValue, ShareUpdateValue
from konvene.share_state.combine import UNKNOWN_OFFSET, combine
from konvene.share_state.requests import StateBatch
from konvene.share_state.state import SharePartitionState, after_snapshot, after_update

__all__ = ["ARCHIVING", "AVAILABLE", "Counts", "InFlight", "SharePartitionHistory", "Value"]

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
"""Delivery states of offsets in share-state records."""

UPDATES_PER_SNAPSHOT = 500
"""Limit of updates per snapshot that the state functions require; no figure here depends on it."""

Value = ShareSnapshotValue | ShareUpdateValue
Batches = tuple[StateBatch, ...]
_last_offset = attrgetter("last_offset")


@dataclass(slots=True)
class Counts:
    """Totals of deliveries, and of records that reached a delivery state.

    A record that is delivered again, or reaches a state again, counts again."""

    delivered: int = 0
    redelivered: int = 0
    """Deliveries after the first one of each record."""
    acknowledged: int = 0
    released: int = 0
    archived: int = 0

    def since(self, before: Counts) -> Counts:
        """Return the difference to earlier counts."""
        return Counts(
            self.delivered - before.delivered,
            self.redelivered - before.redelivered,
            self.acknowledged - before.acknowledged,
            self.released - before.released,
            self.archived - before.archived,
        )

    def copy(self) -> Counts:
        return self.since(Counts())

    def add(self, batch: StateBatch, records: int, before: int) -> None:
        """Count `records` records that reached the state of `batch`; `before` is their delivery count until
        then."""
        times = batch.delivery_count
        self.delivered += records * (times - before)
        self.redelivered += records * (max(times - 1, 0) - max(before - 1, 0))
        if batch.delivery_state == AVAILABLE:
            self.released += records
        elif batch.delivery_state == ACKNOWLEDGED:
            self.acknowledged += records
        elif batch.delivery_state == ARCHIVED:
            self.archived += records


class InFlight(NamedTuple):
    """Figures about the records in flight of a share partition: those from the start offset on that are, as
    far as its state shows, neither acknowledged nor archived."""

    available: int
    """Records that were delivered and can be again."""
    archiving: int
    """Records that are being copied to a dead-letter queue before they are archived."""
    unknown: int
    """Offsets that the state has no entry for, although later ones have."""
    most_deliveries: int
    """Largest delivery count among available and archiving records."""


@dataclass(slots=True)
class SharePartitionHistory:
    """What the records so far show about a share partition: its state, totals and times."""

    first_ms: int
    last_ms: int = 0
    moved_ms: int = 0
    """When the start offset moved last, or the state began."""
    deleted_ms: int | None = None
    state: SharePartitionState | None = None
    """The state as a share coordinator has it; after a tombstone, the state before that."""
    knows_epoch: bool = False
    """Whether a snapshot contained the state's epoch."""
    whole: bool = True
    """Whether no record is missing so far."""
    follows_snapshot: bool = True
    """Whether no record is missing since the last snapshot, and none before it."""
    restarted: bool = True
    """Whether the last record restarted the history."""
    snapshot_epoch: int = -1
    counts: Counts = field(default_factory=Counts)
    max_delivery_count: int = 0
    snapshots: int = 0
    updates: int = 0

    @property
    def known(self) -> SharePartitionState | None:
        """The state, unless it is deleted."""
        return None if self.deleted_ms is not None else self.state

    def take(self, ms: int, value: Value | None) -> None:
        """Apply a record: a snapshot, an update, or None for a tombstone, which deletes the state."""
        self.last_ms = ms
        if value is None:
            self.deleted_ms, self.snapshot_epoch, self.restarted = ms, -1, True
        elif isinstance(value, ShareSnapshotValue):
            self._snapshot(ms, value)
        else:
            self._update(ms, value)

    def _snapshot(self, ms: int, value: ShareSnapshotValue) -> None:
        self.snapshots += 1
        self.follows_snapshot = value.snapshot_epoch in (self.snapshot_epoch + 1, 0)
        self.whole &= self.follows_snapshot
        self.restarted = self._restarts(value)
        before = None if self.restarted else self.known
        self._count(before, _batches(value))
        state = after_snapshot(self.known, value, UPDATES_PER_SNAPSHOT)
        self.snapshot_epoch, self.knows_epoch = value.snapshot_epoch, True
        self._set_state(state, before, ms)

    def _update(self, ms: int, value: ShareUpdateValue) -> None:
        self.updates += 1
        if value.snapshot_epoch != self.snapshot_epoch:
            self.whole = self.follows_snapshot = False
        before = self.known
        self.restarted = before is None
        self._count(before, _batches(value))
        self.snapshot_epoch = value.snapshot_epoch
        self._set_state(after_update(before, value), before, ms)

    def _restarts(self, value: ShareSnapshotValue) -> bool:
        known = self.known
        if known is None:
            return True
        is_another = self.knows_epoch and value.state_epoch != known.state_epoch
        return is_another or value.start_offset < known.start_offset

    def _set_state(self, state: SharePartitionState, before: SharePartitionState | None, ms: int) -> None:
        if before is None or state.start_offset != before.start_offset:
            self.moved_ms = ms
        self.state, self.deleted_ms = state, None

    def _count(self, before: SharePartitionState | None, added: Batches) -> None:
        """Count what batches add to a state; offsets before its start do not count."""
        if not added:
            return
        known: Batches = () if before is None else before.batches
        start = UNKNOWN_OFFSET if before is None else before.start_offset
        overlap = any(after.first_offset <= one.last_offset for one, after in pairwise(added))
        for batch in added:
            if batch.last_offset >= start:
                if batch.first_offset < start:
                    batch = batch._replace(first_offset=start)
                self.max_delivery_count = max(self.max_delivery_count, batch.delivery_count)
                _count_one(self.counts, known, batch)
                if overlap:
                    known = combine(known, (batch,), UNKNOWN_OFFSET)

    def in_flight(self) -> InFlight:
        """Return the in-flight figures of the current state."""
        if self.state is None or not self.state.batches:
            return InFlight(0, 0, 0, 0)
        sizes = {AVAILABLE: 0, ARCHIVING: 0}
        covered = most = 0
        for first, last, state, times in self.state.batches:
            covered += last - first + 1
            if state in sizes:
                sizes[state] += last - first + 1
                most = max(most, times)
        span = self.state.batches[-1].last_offset + 1 - max(self.state.start_offset, 0)
        return InFlight(sizes[AVAILABLE], sizes[ARCHIVING], span - covered, most)


def _batches(value: Value) -> Batches:
    batches: tuple[StateBatch, ...] = value.state_batches  # type: ignore[assignment]  # Same fields.
    return batches


def _count_one(counts: Counts, known: Batches, batch: StateBatch) -> None:
    """Count the parts of a batch that are newer than the known batches: a larger delivery count, or the same
    count and a larger state."""
    at = batch.first_offset
    for old in _touched(known, batch):
        if old.first_offset > at:
            counts.add(batch, old.first_offset - at, 0)
            at = old.first_offset
        upto = min(old.last_offset, batch.last_offset)
        if (batch.delivery_count, batch.delivery_state) > (old.delivery_count, old.delivery_state):
            counts.add(batch, upto + 1 - at, old.delivery_count)
        at = upto + 1
    if at <= batch.last_offset:
        counts.add(batch, batch.last_offset + 1 - at, 0)


def _touched(known: Batches, batch: StateBatch) -> Iterator[StateBatch]:
    """Yield the known batches that overlap a batch, in order."""
    at = bisect_left(known, batch.first_offset, key=_last_offset)
    while at < len(known) and known[at].first_offset <= batch.last_offset:
        yield known[at]
        at += 1
