"""The log of share state in virtual time: a list of batches that loses its beginning, and whose records have
offsets, by which the core says what of it is superfluous.

Whole batches go: the one with the offset that is kept stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from konvene.broker.shares.state_coordinators import SHARE_STATE_SPEECH
from konvene.codec.batches import BatchHeader
from konvene.records.share_state import ShareSnapshotKey
from konvene.runtime.ports import RecordSerde
from konvene.share_state.state import PositionedRecord
from konvene.sim.journal import Batch, Journal, Log, _Header


class StateLog(Log):
    """See the top of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.base_offset = 0
        self.cut = 0
        """How many batches went with the beginning."""
        self._ends: list[int] = []

    def offset_at(self, number: int) -> int:
        """The offset behind so many batches."""
        ends = self._ends
        del ends[len(self.batches) :]
        while len(ends) < len(self.batches):
            ends.append((ends[-1] if ends else self.base_offset) + self.batches[len(ends)].size)
        return ends[number - 1] if number else self.base_offset

    def lose_beginning(self, offset: int) -> int:
        """Nothing before that offset is needed; how many batches are gone."""
        gone = 0
        while gone < self.durable and self.offset_at(gone + 1) <= offset:
            gone += 1
        self.base_offset = self.offset_at(gone)
        del self.batches[:gone], self._ends[:gone]
        self.durable -= gone
        self.written = max(0, self.written - gone)
        self.cut += gone
        return gone


class StateJournal(Journal):
    """The same as a coordinator sees it."""

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


SHARE_STATE_SERDE = RecordSerde(SHARE_STATE_SPEECH.encode, _read)
