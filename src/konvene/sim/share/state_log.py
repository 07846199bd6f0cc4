"""Simulated log of the share coordinator, whose records have offsets and whose beginning is deleted.

Only whole batches are deleted: the batch that holds the first retained offset stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from konvene.broker.shares.state_coordinators import SHARE_STATE_SERDE as BROKER_SERDE
from konvene.codec.batches import BatchHeader
from konvene.records.share_state import ShareSnapshotKey
from konvene.runtime.ports import RecordSerde
from konvene.share_state.state import PositionedRecord
from konvene.sim.journal import Batch, Journal, Log, _Header


class StateLog(Log):
    """A log in which records have offsets and whose beginning can be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.base_offset = 0
        self.cut = 0
        """Number of batches that were deleted from the beginning."""
        self._ends: list[int] = []

    def offset_at(self, number: int) -> int:
        """Return the offset after the first `number` retained batches; the start offset for 0."""
        ends = self._ends
        del ends[len(self.batches) :]
        while len(ends) < len(self.batches):
            ends.append((ends[-1] if ends else self.base_offset) + self.batches[len(ends)].size)
        return ends[number - 1] if number else self.base_offset

    def lose_beginning(self, offset: int) -> int:
        """Delete the durable batches whose records are all below an offset; return how many there were."""
        count = 0
        while count < self.durable and self.offset_at(count + 1) <= offset:
            count += 1
        self.base_offset = self.offset_at(count)
        del self.batches[:count], self._ends[:count]
        self.durable -= count
        self.written = max(0, self.written - count)
        self.cut += count
        return count


class StateJournal(Journal):
    """The journal through which the share coordinator appends to its log, with positions as offsets instead
    of batch numbers."""

    log: StateLog

    @property
    def end_offset(self) -> int:
        return self.log.offset_at(len(self.log.batches))

    @property
    def synced_offset(self) -> int:
        return self.log.offset_at(self.log.durable)

    def _append(self, batch: Batch) -> int:
        super()._append(batch)
        return self.end_offset

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for number, batch in enumerate(self.log.batches):
            at = self.log.offset_at(number), batch
            yield cast("BatchHeader", _Header(len(batch.records))), cast("memoryview", at)


def _read(numbered: Any, header: BatchHeader) -> Iterator[tuple[int, int, Any]]:
    base, batch = numbered
    for offset, record in enumerate(batch.records, base):
        kept = PositionedRecord(offset, record) if type(record.key) is ShareSnapshotKey else record
        yield offset, batch.timestamp_ms, kept


SHARE_STATE_SERDE = RecordSerde(BROKER_SERDE.encode, _read)
