"""A partition of the output topic: batches of producers, and transaction markers.

The log layer (`log.producers`) checks sequences, epochs and open transactions. This log never loses its tail;
the logs of coordinators do, and so do all logs of end-to-end runs.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.batches import BatchHeader, EndMarker, end_marker, read_header, records
from konvene.log.producers import Origin, Producers
from konvene.shard.contract import Ending


class Written(NamedTuple):
    """A batch in an output log: either records of a producer (`values`) or a transaction marker
    (`marker`)."""

    header: BatchHeader
    values: tuple[bytes, ...] = ()
    marker: EndMarker | None = None


class OutputLog:
    """The log of a partition of the output topic, with the state of its producers."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.end_offset = 0
        self.producers = Producers()

    def __repr__(self) -> str:
        return f"<output log: {len(self.batches)} batches, {self.producers!r}>"

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction with this epoch."""
        known = self.producers.by_id.get(producer_id)
        return known is not None and known.transaction_start is not None and known.epoch == epoch

    def open_of(self, producer_id: int) -> tuple[bytes, ...]:
        """Return the values of the records that the open transaction of a producer wrote to this log."""
        known = self.producers.by_id.get(producer_id)
        if known is None or known.transaction_start is None:
            return ()
        return tuple(
            value
            for batch in self.batches
            if batch.header.producer_id == producer_id and batch.header.base_offset >= known.transaction_start
            for value in batch.values
        )

    def append(self, data: bytes, *, sequence_zero: bool) -> tuple[int, bool]:
        """Append an encoded batch of a producer; return its first offset and True.

        A duplicate is not appended: return the offset of the original and False. `sequence_zero`: a producer
        that the log does not know must begin with sequence 0. Raises `Refused` if the producer state does not
        permit the batch."""
        header = read_header(data)._replace(base_offset=self.end_offset)
        known = self.producers.check(header, origin=Origin.CLIENT, sequence_zero=sequence_zero)
        if known is not None:
            return known.first_offset, False
        self.producers.note(header)
        self.end_offset = header.base_offset + header.record_count
        self.batches.append(Written(header, tuple(record.value or b"" for record in records(data))))
        return header.base_offset, True

    def mark(self, ending: Ending, now_ms: int) -> None:
        """Append the marker that ends a transaction. Raises `Refused` if the producer state does not permit
        it."""
        self.producers.check_marker(
            ending.producer_id, ending.producer_epoch, ending.coordinator_epoch, ending.transaction_version
        )
        data = end_marker(
            ending.committed,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            coordinator_epoch=ending.coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=self.end_offset,
        )
        marker = EndMarker(ending.committed, ending.coordinator_epoch)
        header = read_header(data)
        self.producers.note_marker(header, marker)
        self.end_offset += 1
        self.batches.append(Written(header, marker=marker))
