"""Reads one partition of `__consumer_offsets` and tells why its groups rebalanced. Pure.

Records are fed one by one, in the order of the log and from its beginning. What is kept is a group's state
and the little that its last records said; of groups that are gone, nothing.

A log is compacted: of its older part, and of any part while it is read, only the last record of each key may
be left. A story told from what happens to be left would be wrong (who changed its subscription would look
like who joined). So there are rows only where nothing can be missing:

    from offset 0 on, as long as no offset is missing
    after a gap, once a key has come twice: in what was compacted each comes once, so this is behind it, and
    the state that was read is the one that the group had

A batch is one decision, or several in a row. Who knows batches says where they begin (`batch`); for who does
not, records of one time that stand side by side are taken for one.
"""

from __future__ import annotations

from typing import Any

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.history.classic import infer
from konvene.groups.history.consumer import ConsumerHistory
from konvene.groups.history.conversion import HandedOver, downgraded
from konvene.groups.history.modern import At, EpochHistory, key_of
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

__all__ = ["History"]


class History:
    """One partition's past, as far as it was read.

    With `units`, what members have and are to have is kept as well: `group` shows the whole group then."""

    def __init__(self, partition: int, *, units: bool = False) -> None:
        self._partition = partition
        self._units = units
        self._classic: dict[str, GroupMetadataValue] = {}
        self._consumer = ConsumerHistory(partition, units=units)
        self._streams = StreamsHistory(partition, units=units)
        self._share = ShareHistory(partition, units=units)
        self._epochs: tuple[EpochHistory[Any, Any], ...] = (self._consumer, self._streams, self._share)
        self._converts: tuple[HandedOver[Any, Any], ...] = (self._consumer, self._streams)
        self._by_key = {key: each for each in self._epochs for key in each.takes}
        self._handed_over: dict[str, tuple[Cause, ...]] = {}
        self._keys: set[Any] | None = None
        self._begins = -1
        self._ends = -1
        self._timestamp_ms = -1

    def __repr__(self) -> str:
        return f"<history of partition {self._partition} up to offset {self._ends}>"

    @property
    def whole(self) -> bool:
        """Whether nothing that was written before this point can be missing."""
        return self._keys is None

    @property
    def begins(self) -> int:
        """Where the batch begins that was read last; -1 before the first."""
        return self._begins

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        """The records up to `last_offset` are one batch, of which so many are left.

        To say so again for the same batch changes nothing."""
        if base_offset == self._begins:
            return
        if base_offset != self._ends + 1 or last_offset - base_offset + 1 != count:
            self.gap()
        self._begins, self._ends = base_offset, last_offset
        for each in self._epochs:
            each.next_batch()

    def gap(self) -> None:
        """What was written before this point may be missing, or could not be read."""
        if self.whole:
            for each in self._epochs:
                each.gap()
        self._keys = set()

    def group(self, group_id: str) -> ConsumerGroup | StreamsGroup | ShareGroup | GroupMetadataValue | None:
        """The group as the last record left it; of a classic one, that record."""
        for each in self._epochs:
            group: ConsumerGroup | StreamsGroup | ShareGroup | None = each.group(group_id)
            if group is not None:
                return group
        return self._classic.get(group_id)

    def reach(self, offset: int, timestamp_ms: int) -> None:
        """A record stands here; if nobody said where its batch begins, see whether it is in the last one."""
        if offset > self._ends:
            self._beside(offset, timestamp_ms)

    def take(self, offset: int, timestamp_ms: int, record: Any) -> Rebalance | None:
        """Take in what stands at an offset, and say why a group moved, if it did.

        What is no `Record` says nothing of groups."""
        self.reach(offset, timestamp_ms)
        if type(record) is not Record:
            return None
        key: Any = record.key
        kind = type(key)
        epochs = self._by_key.get(kind)
        if kind is not GroupMetadataKey and epochs is None:
            if kind is ConsumerGroupTargetAssignmentMemberKey:
                self._note(key)
                if self._units:
                    self._take_target(record)
            return None
        self._note(key)
        at = At(offset, timestamp_ms, self.whole)
        if epochs is None:
            group_id, row = key.group, self._take_classic(record, at)
        else:
            if record.value is not None and epochs.group(key.group_id) is None:
                self._is_of(epochs, key.group_id)
            group_id, row = key.group_id, epochs.take(record, at)
        return None if row is None else Rebalance(group_id, row)

    def _take_target(self, record: Record) -> None:
        group_id = key_of(record).group_id
        if record.value is not None and self._consumer.group(group_id) is None:
            self._is_of(self._consumer, group_id)
        self._consumer.take_beside(record)

    def _is_of(self, epochs: EpochHistory[Any, Any], group_id: str) -> None:
        """The group is of this type by now."""
        self._classic.pop(group_id, None)
        self._handed_over.pop(group_id, None)
        for each in self._epochs:
            if each is not epochs:
                each.forget(group_id)

    def _beside(self, offset: int, timestamp_ms: int) -> None:
        """Nobody said where this record's batch begins."""
        if offset == self._ends + 1 and timestamp_ms == self._timestamp_ms:
            self._ends = offset
            return
        self._timestamp_ms = timestamp_ms
        self.batch(offset, offset, 1)

    def _note(self, key: Any) -> None:
        if self._keys is not None:
            if key in self._keys:
                self._keys = None
            else:
                self._keys.add(key)

    def _take_classic(self, record: Record, at: At) -> RebalanceValue | None:
        key: Any = record.key
        value: Any = record.value
        group_id: str = key.group
        previous = self._classic.pop(group_id, None)
        ended = next(filter(None, (each.ended(group_id) for each in self._converts)), None)
        for each in self._epochs:
            each.forget(group_id)
        if value is None:
            for kind in self._converts:
                kind.classic_group_ended(group_id)
            self._handed_over.pop(group_id, None)
            return None
        self._classic[group_id] = value
        handed_over = self._handed_over.pop(group_id, ())
        if ended is not None and at.whole:
            self._handed_over[group_id] = tuple(downgraded(ended, value, at))
        if ended is not None or not at.whole:
            return None
        row = infer(
            previous, value, group=group_id, timestamp_ms=at.timestamp_ms, partition=self._partition,
            offset=at.offset,
        )  # fmt: skip
        if row is None:
            if handed_over:
                self._handed_over[group_id] = handed_over
            return None
        if not handed_over or previous is None or value.generation != previous.generation + 1:
            return row
        found = tuple(c for c in row.causes if c.kind != causes.UNKNOWN)
        return row.replace(causes=handed_over + found)
