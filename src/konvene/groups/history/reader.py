"""Read one partition of `__consumer_offsets` and infer why its groups rebalanced, without I/O.

Records are passed in one by one, in the order of the log and from its beginning. The reader keeps each
group's state and little else; of deleted groups it keeps nothing.

A log is compacted: its older part, and any part while it is read, may have only the last record of each key.
A row inferred from an incomplete log would be wrong (a member that changed its subscription would look like a
new one). So there are rows only where no record can be missing:

    from offset 0 on, as long as no offset is missing
    after a gap, once a key was read twice: the compacted part has each key once, so it has ended, and the
    state that was read is the state that the group had

A batch is one decision, or several in a row. Callers that know batches call `batch`; otherwise adjacent
records with the same timestamp count as one batch.
"""

from __future__ import annotations

from typing import Any

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.history.classic import infer, is_rejoin
from konvene.groups.history.completeness import Completeness
from konvene.groups.history.consumer import ConsumerHistory
from konvene.groups.history.conversion import ConvertibleHistory, downgrade_causes
from konvene.groups.history.modern import EpochHistory, Position, key_of
from konvene.groups.history.share import ShareHistory
from konvene.groups.history.streams import StreamsHistory
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.consumer import ConsumerGroupTargetAssignmentMemberKey
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.shard.contract import Rebalance

__all__ = ["NOTED_KEYS", "History"]

NOTED_KEYS: frozenset[type] = frozenset(
    {
        GroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        *ConsumerHistory.handlers,
        *StreamsHistory.handlers,
        *ShareHistory.handlers,
    }
)
"""Types of the keys by which `History` recognises that a log is complete again."""


class History:
    """A reader of one partition of the log: it is passed the records, and returns the rebalances it infers.

    With `units`, it keeps the assignments of members as well, so that `group` returns the whole group.
    `completeness` detects where records are missing."""

    def __init__(
        self, partition: int, *, units: bool = False, completeness: Completeness | None = None
    ) -> None:
        self._partition = partition
        self._units = units
        self._classic: dict[str, GroupMetadataValue] = {}
        self._consumer = ConsumerHistory(partition, units=units)
        self._streams = StreamsHistory(partition, units=units)
        self._share = ShareHistory(partition, units=units)
        self._epochs: tuple[EpochHistory[Any, Any], ...] = (self._consumer, self._streams, self._share)
        self._converts: tuple[ConvertibleHistory[Any, Any], ...] = (self._consumer, self._streams)
        self._by_key = {key: each for each in self._epochs for key in each.handlers}
        self._downgrades: dict[str, tuple[Cause, ...]] = {}
        self._completeness = completeness or Completeness()
        self._doubtful: set[str] = set()
        """Classic groups whose last record followed a gap: its rebalance, such as one after a downgrade, may
        be due."""
        self._begins = -1
        self._ends = -1
        self._timestamp_ms = -1

    def __repr__(self) -> str:
        return f"<history of partition {self._partition} up to offset {self._ends}>"

    @property
    def complete(self) -> bool:
        """Return whether no record before this point can be missing."""
        return self._completeness.complete

    @property
    def begins(self) -> int:
        """Return the base offset of the last batch; -1 before the first."""
        return self._begins

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        """Begin a batch of `count` records up to `last_offset`.

        Records are missing (`gap`) if it has fewer than offsets, or does not follow the last batch directly.
        A repeated call for the same batch has no effect."""
        if base_offset == self._begins:
            return
        if self._completeness.is_gap(self._ends, base_offset, last_offset, count):
            self.gap()
        self._begins, self._ends = base_offset, last_offset
        for each in self._epochs:
            each.next_batch()

    def gap(self) -> None:
        """Called where records may be missing before this point, or could not be decoded.

        Drop the rebalances in progress, and infer none until the log is known to be complete again."""
        if self.complete:
            for each in self._epochs:
                each.gap()
        self._completeness.gap()

    def group(self, group_id: str) -> ConsumerGroup | StreamsGroup | ShareGroup | GroupMetadataValue | None:
        """Return the group as of the last record that was read; None if there is no such group.

        For a classic group it is the value of its last record."""
        for each in self._epochs:
            group: ConsumerGroup | StreamsGroup | ShareGroup | None = each.group(group_id)
            if group is not None:
                return group
        return self._classic.get(group_id)

    def reach(self, offset: int, timestamp_ms: int) -> None:
        """Advance to the record at this offset, without applying it.

        If no batch with that offset was begun with `batch`, a new batch begins unless the record is adjacent
        to the last one and has its timestamp."""
        if offset > self._ends:
            self._guess_batch(offset, timestamp_ms)

    def take(self, offset: int, timestamp_ms: int, record: object) -> Rebalance | None:
        """Apply the record at an offset; return the rebalance that it completes or begins, if any.

        Anything but a `Record` is ignored."""
        self.reach(offset, timestamp_ms)
        if type(record) is not Record:
            return None
        key: Any = record.key
        kind = type(key)
        epochs = self._by_key.get(kind)
        if kind is not GroupMetadataKey and epochs is None:
            if kind is ConsumerGroupTargetAssignmentMemberKey:
                self._completeness.note(key)
                if self._units:
                    self._take_target(record)
            return None
        self._completeness.note(key)
        position = Position(offset, timestamp_ms, self.complete)
        if epochs is None:
            group_id, row = key.group, self._take_classic(record, position)
        else:
            if record.value is not None and epochs.group(key.group_id) is None:
                self._set_type(epochs, key.group_id)
            group_id, row = key.group_id, epochs.take(record, position)
        return None if row is None else Rebalance(group_id, row)

    def _take_target(self, record: Record) -> None:
        group_id = key_of(record).group_id
        if record.value is not None and self._consumer.group(group_id) is None:
            self._set_type(self._consumer, group_id)
        self._consumer.replay_without_row(record)

    def _set_type(self, epochs: EpochHistory[Any, Any], group_id: str) -> None:
        """Called for a group that has another type now: forget what is known of a group with this id.

        `epochs`: the history of the groups of its present type."""
        self._classic.pop(group_id, None)
        self._downgrades.pop(group_id, None)
        for each in self._epochs:
            if each is not epochs:
                each.forget(group_id)

    def _guess_batch(self, offset: int, timestamp_ms: int) -> None:
        """Continue the last batch if the record is adjacent and has its timestamp; else begin a batch."""
        if offset == self._ends + 1 and timestamp_ms == self._timestamp_ms:
            self._ends = offset
            return
        self._timestamp_ms = timestamp_ms
        self.batch(offset, offset, 1)

    def _take_classic(self, record: Record, position: Position) -> RebalanceValue | None:
        key: Any = record.key
        value: Any = record.value
        group_id: str = key.group
        previous = self._classic.pop(group_id, None)
        ended = None
        if previous is None:  # Otherwise the batch has more than the conversion.
            ended = next(filter(None, (each.ended(group_id) for each in self._converts)), None)
        for each in self._epochs:
            each.forget(group_id)
        if value is None:
            for kind in self._converts:
                kind.classic_group_ended(group_id)
            self._doubtful.discard(group_id)
            self._downgrades.pop(group_id, None)
            return None
        self._classic[group_id] = value
        is_doubtful = group_id in self._doubtful
        if position.complete:
            self._doubtful.discard(group_id)
        else:
            self._doubtful.add(group_id)
        downgrade = self._downgrades.pop(group_id, ())
        if ended is not None and position.complete:
            self._downgrades[group_id] = tuple(downgrade_causes(ended, value, position))
        if ended is not None or not position.complete:
            return None
        row = infer(
            previous, value, group=group_id, timestamp_ms=position.timestamp_ms, partition=self._partition,
            offset=position.offset,
        )  # fmt: skip
        if row is None:
            if downgrade:
                self._downgrades[group_id] = downgrade
            return None
        if is_doubtful and any(is_rejoin(c) for c in row.causes):
            certain = tuple(c for c in row.causes if not is_rejoin(c))
            row = row.replace(causes=certain or (Cause(kind=causes.UNKNOWN),))
        if not downgrade or previous is None or value.generation != previous.generation + 1:
            return row
        found = tuple(c for c in row.causes if not is_rejoin(c))
        return row.replace(causes=downgrade + found)
