"""Simulated log of a coordinator: a list of batches, with injected faults.

Bytes are real: every record is encoded, and readers get what was decoded. The production rules for producers
(`konvene.log.producers`) track transactions, and reject a fenced epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

from konvene.codec.batches import BatchHeader, EndMarker, Record, build, read_header
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.log.errors import Refused
from konvene.log.producers import Origin, Producers
from konvene.records.commits import decode_group_record, encode_group_record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.runtime.ports import AppendRefused, Pair, RecordSerde, RecordTooLarge
from konvene.shard.contract import Ending, Producer
from konvene.sim.event_queue import Pause


class Batch(NamedTuple):
    """A batch of the log: its encoded records, and the records decoded from them."""

    pairs: tuple[tuple[bytes, bytes | None], ...]
    records: tuple[Any, ...]
    timestamp_ms: int = 0
    size: int = 0
    """Number of records when it was written."""
    producer: Producer | None = None
    """Producer of its transaction, if any."""
    ending: Ending | None = None
    """Content of the transaction marker, if it is one."""


class Log:
    """The log of a coordinator's partition, as a list of batches. A crash may lose all batches but the first
    `durable` ones."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.producers = Producers()
        self.durable = 0
        self.written = 0
        """Number of batches in the page cache: they survive the process, but not the machine."""
        self.epoch = 0
        """Leader epoch; a journal with another epoch cannot append."""

    def __repr__(self) -> str:
        return f"<log: {len(self.batches)} batches, {self.durable} durable, epoch {self.epoch}>"

    def lose_tail(self, keep: int) -> int:
        """Drop the batches that are not durable, except the first `keep` of them, which become durable.

        Return the number of lost batches."""
        end = min(self.durable + keep, len(self.batches))
        lost = len(self.batches) - end
        del self.batches[end:]
        self.durable = self.written = end
        self.producers = Producers()
        for at, batch in enumerate(self.batches):
            self.note(batch, at)
        return lost

    def check(self, batch: Batch) -> None:
        """Check that the state of its producer permits to append a transactional batch or a marker. Raises
        `AppendRefused` otherwise."""
        try:
            if batch.producer is not None:
                self.producers.check(_header_of(batch, len(self.batches)), origin=Origin.COORDINATOR)
            elif batch.ending is not None:
                ending = batch.ending
                self.producers.check_marker(
                    ending.producer_id, ending.producer_epoch, ending.coordinator_epoch,
                    ending.transaction_version,
                )  # fmt: skip
        except Refused as refused:
            raise AppendRefused(Errors(refused.code)) from None

    def note(self, batch: Batch, at: int) -> None:
        """Update the state of the producer of `batch`, if it has one; `at` is the number of the batch in the
        log."""
        if batch.producer is not None:
            self.producers.note(_header_of(batch, at))
        elif batch.ending is not None:
            marker = EndMarker(batch.ending.committed, batch.ending.coordinator_epoch)
            self.producers.note_marker(_header_of(batch, at), marker)


_PLAIN = read_header(
    build([Record(0, 0, None, None, ())], producer_id=0, producer_epoch=0, transactional=True)
)


def _header_of(batch: Batch, at: int) -> BatchHeader:
    """Return the header that a transactional batch or a marker would have as batch number `at`."""
    source = batch.producer or batch.ending
    assert source is not None
    epoch = source.epoch if isinstance(source, Producer) else source.producer_epoch
    return _PLAIN._replace(
        producer_id=source.producer_id, producer_epoch=epoch, base_offset=at, max_timestamp=batch.timestamp_ms
    )


Decode = Callable[[bytes, bytes | None], object]
"""Decodes a record from its key and value."""


def batch_of(
    pairs: Iterable[tuple[bytes, bytes | None]], timestamp_ms: int = 0, decode: Decode = decode_group_record
) -> Batch:
    """Return a batch of these encoded records, as pairs of key and value."""
    encoded = tuple(pairs)
    records = tuple(decode(key, value) for key, value in encoded)
    return Batch(encoded, records, timestamp_ms, len(encoded))


def replayed(batches: Iterable[Batch]) -> GroupShard:
    """Return a group shard that replayed these batches."""
    shard = GroupShard()
    for batch in batches:
        for record in batch.records:
            shard.replay(record)
    return shard


class Journal:
    """The journal through which a coordinator appends to its log; it injects faults.

    `at_once` makes each append durable immediately."""

    def __init__(self, log: Log, at_once: bool, decode: Decode = decode_group_record) -> None:
        self.log = log
        self._decode = decode
        self.epoch = log.epoch
        self.at_once = at_once
        self.refuse: str | None = None
        """Fault of the next append: "fails" or "too large"."""
        self.sync_pause: Pause | None = None
        self.sync_end = 0
        """Number of batches that the current sync covers; later appends belong to the next one."""
        self.appended: Batch | None = None
        self.failed: str | None = None
        self.refused: Errors | None = None
        """Error with which the log rejected the producer of the last append."""

    @property
    def end_offset(self) -> int:
        return len(self.log.batches)

    @property
    def synced_offset(self) -> int:
        return self.log.durable

    @property
    def online(self) -> bool:
        return self.epoch == self.log.epoch

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        batch = batch_of(cast("list[tuple[bytes, bytes | None]]", pairs), now_ms, self._decode)
        if producer is not None:
            inside = tuple(InTransaction(producer.producer_id, record) for record in batch.records)
            batch = batch._replace(records=inside, producer=producer)
        return self._append(batch)

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        ended = TransactionEnded(ending.producer_id, ending.committed)
        return self._append(Batch((), (ended,), now_ms, 1, ending=ending))

    def _append(self, batch: Batch) -> int:
        refuse, self.refuse = self.refuse, None
        try:
            self.log.check(batch)
        except AppendRefused as refused:
            self.failed, self.refused = "refused", refused.error
            raise
        if refuse == "too large":
            self.failed = refuse
            raise RecordTooLarge("the batch does not fit")
        if refuse == "fails" or not self.online:
            self.failed = "append failed"
            raise OSError("the append failed")
        self.appended = batch
        self.log.note(batch, len(self.log.batches))
        self.log.batches.append(batch)
        if self.at_once:
            self.log.durable = len(self.log.batches)
        return len(self.log.batches)

    def write(self) -> None:
        self.log.written = len(self.log.batches)

    async def sync(self) -> None:
        self.sync_end = len(self.log.batches)
        self.sync_pause = Pause()
        await self.sync_pause

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for batch in self.log.batches:
            yield cast("BatchHeader", _Header(len(batch.records))), cast("memoryview", batch)


class _Header(NamedTuple):
    record_count: int


def read_values(batch: Any, header: BatchHeader) -> Iterator[tuple[int, int, Any]]:
    for record in batch.records:
        yield 0, 0, record


GROUP_SERDE = RecordSerde(encode_group_record, read_values)
