"""Producer state of a partition: detects duplicates, gaps and fenced producers, and tracks transactions.

The state of a producer id is its epoch, its last five batches and the first offset of an open transaction.
`check` decides whether a batch may be written and changes nothing. `note` records a batch that was written,
in log order, so that replaying a log restores the state. All rules are Kafka 4.4's (`ProducerAppendInfo`,
`ProducerStateManager`):

- a batch with the epoch and the sequence range of one of the last five is a duplicate: the append succeeds
  and nothing is written;
- an older epoch is INVALID_PRODUCER_EPOCH; a gap or a step back is OUT_OF_ORDER_SEQUENCE_NUMBER;
- an unknown producer may begin with any sequence (its records may have been deleted), except where
  transactions of version 2 require 0;
- a new epoch begins at 0.

Open transactions determine the last stable offset, at which read-committed consumers stop. The module also
encodes two files in Kafka's formats: `.snapshot` (all producers at an offset) and `.txnindex` (the aborted
transactions of a segment).
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader, EndMarker
from konvene.codec.errors import Malformed
from konvene.log.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)

REMEMBERED_BATCHES = 5

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_ABORTED = struct.Struct(">hqqqq")


class Origin(Enum):
    """The kind of sender of an append, which determines the checks that apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class WrittenBatch(NamedTuple):
    """Sequence numbers, offsets and timestamp of a batch that a producer has written."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: read-committed consumers skip the producer's records in its offset range.

    `last_offset` is that of the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Producer:
    """The state of one producer id in a partition: its epoch, last batches and open transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start: int | None = None
        self.batches: list[WrittenBatch] = []

    def __repr__(self) -> str:
        opened = "" if self.transaction_start is None else f", transaction since {self.transaction_start}"
        return f"Producer(epoch {self.epoch}, sequence {self.last_sequence}{opened})"

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    """The state of all producers of one partition."""

    __slots__ = ("_ended", "_open", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        #: Producer id by first offset of its open transaction, in ascending order.
        self._open: dict[int, int] = {}
        #: (first offset, marker offset) of ended transactions whose marker may be above the high watermark.
        self._ended: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"Producers({len(self.by_id)} known, {len(self._open)} transactions open)"

    # checking --------------------------------------------------------------------------------

    def check(
        self, header: BatchHeader, *, origin: Origin, sequence_zero: bool = False
    ) -> WrittenBatch | None:
        """Return None if the batch may be written now; return the earlier batch if it is a duplicate of one.

        Raises `InvalidProducerEpoch`, `OutOfOrderSequence` or `InvalidTransactionState`. With `sequence_zero`
        an unknown producer must begin at sequence 0.
        """
        producer = self.by_id.get(header.producer_id)
        if origin is Origin.CLIENT:
            if header.base_sequence < 0:
                raise InvalidRecord(f"producer {header.producer_id} sent a batch without a sequence")
            if producer is None:
                if sequence_zero and header.base_sequence:
                    raise OutOfOrderSequence(f"producer {header.producer_id} must begin with sequence 0")
                return None
            if header.producer_epoch == producer.epoch:
                span = (header.base_sequence, header.last_sequence)
                for written in producer.batches:
                    if span == written[:2]:
                        return written
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {producer.epoch}, not {header.producer_epoch}"
            )
        if origin is Origin.CLIENT:
            _check_sequence(producer, header)
        if producer.transaction_start is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"a plain write of producer {header.producer_id}, whose transaction is open"
            )
        return None

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Check that a transaction marker may be written now; raise `InvalidProducerEpoch` or
        `TransactionCoordinatorFenced`.

        From transaction version 2 on a marker carries the producer's next epoch, so a marker with the current
        epoch is only accepted as the retry of one that was written.
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        if transaction_version >= 2 and producer_epoch == producer.epoch:
            invalid = producer.transaction_start is not None and producer_epoch != 0x7FFF
        else:
            invalid = producer_epoch < producer.epoch
        if invalid:
            raise InvalidProducerEpoch(
                f"a marker of epoch {producer_epoch} for producer {producer_id} at epoch {producer.epoch}"
            )
        if producer.coordinator_epoch > coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of coordinator epoch {coordinator_epoch}, {producer.coordinator_epoch} was seen"
            )

    # recording -----------------------------------------------------------------------------

    def note(self, header: BatchHeader) -> None:
        """Update a producer's state for a batch of records that was written."""
        producer = self._producer(header.producer_id, header.producer_epoch)
        written = WrittenBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        producer.batches.append(written)
        if len(producer.batches) > REMEMBERED_BATCHES:
            del producer.batches[0]
        producer.last_timestamp = header.max_timestamp
        if header.is_transactional and producer.transaction_start is None:
            producer.transaction_start = header.base_offset
            self._open[header.base_offset] = header.producer_id

    def note_marker(self, header: BatchHeader, marker: EndMarker) -> AbortedTransaction | None:
        """End a producer's transaction when its marker was written; return the transaction if aborted."""
        producer = self._producer(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        start, producer.transaction_start = producer.transaction_start, None
        if start is None:
            return None
        self._open.pop(start, None)
        self._ended.append((start, header.base_offset))
        if marker.committed:
            return None
        stable = min(self._open, default=header.base_offset + 1)
        return AbortedTransaction(header.producer_id, start, header.base_offset, stable)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove idle producers without an open transaction; return how many."""
        expired = [
            producer_id
            for producer_id, producer in self.by_id.items()
            if producer.transaction_start is None and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        return len(expired)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which read-committed consumers may read.

        It is the high watermark, or the start of an earlier transaction without a marker below that.
        """
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        stable = high_watermark
        if self._open:
            stable = min(stable, next(iter(self._open)))
        for first, _ in self._ended:
            stable = min(stable, first)
        return stable

    def _producer(self, producer_id: int, epoch: int) -> Producer:
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer()
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = []
        return producer

    # snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Encode all producers as a `.snapshot` file, which has only the last batch of each."""
        parts = [struct.pack(">i", len(self.by_id))]
        for producer_id, producer in self.by_id.items():
            last = producer.batches[-1] if producer.batches else WrittenBatch(-1, -1, -1, -1, -1)
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.last_offset - last.first_offset,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    -1 if producer.transaction_start is None else producer.transaction_start,
                )
            )
        body = b"".join(parts)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def restore(cls, data: bytes) -> Producers:
        """Decode a `.snapshot` file. Raises `Malformed` if it is damaged or of another version."""
        if len(data) < _SNAPSHOT_HEAD.size + 4:
            raise Malformed("a producer snapshot is cut")
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        body = data[_SNAPSHOT_HEAD.size :]
        if version != _SNAPSHOT_VERSION or crc32c(body) != crc:
            raise Malformed("a producer snapshot is of another version or damaged")
        if len(body) != 4 + _SNAPSHOT_ENTRY.size * int.from_bytes(body[:4], "big"):
            raise Malformed("a producer snapshot counts wrongly")
        producers = cls()
        opened: list[tuple[int, int]] = []
        for row in _SNAPSHOT_ENTRY.iter_unpack(body[4:]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = row
            producer = producers.by_id[producer_id] = Producer()
            producer.epoch = epoch
            producer.coordinator_epoch = coordinator_epoch
            producer.last_timestamp = timestamp
            if offset >= 0:
                first = sequence if sequence < 0 else (sequence - delta) & 0x7FFF_FFFF
                producer.batches.append(WrittenBatch(first, sequence, offset - delta, offset, timestamp))
            if start >= 0:
                producer.transaction_start = start
                opened.append((start, producer_id))
        producers._open = dict(sorted(opened))
        return producers


def _check_sequence(producer: Producer, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != producer.epoch:
        if first and producer.epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first}"
            )
    else:
        last = producer.last_sequence
        if first != last + 1 and not (first == 0 and last == 0x7FFF_FFFF):
            raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {first} behind {last}")


def write_aborted(aborted: list[AbortedTransaction]) -> bytes:
    """Encode a segment's aborted transactions as a `.txnindex` file."""
    return b"".join(_ABORTED.pack(0, *entry) for entry in aborted)


def read_aborted(data: bytes) -> list[AbortedTransaction]:
    """Decode a `.txnindex` file. Raises `Malformed` if its size or version is wrong."""
    if len(data) % _ABORTED.size:
        raise Malformed(f"{len(data)} bytes are no transaction index")
    return [AbortedTransaction(*row[1:]) for row in _ABORTED.iter_unpack(data)]
