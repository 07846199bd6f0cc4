"""What of a batch stays: Kafka's `Cleaner.checkBatchRetention`, `shouldRetainRecord` and
`MemoryRecords.filterTo`.

- A record stays if the map knows no later one of its key, or has not got that far; without a key it goes.
- A tombstone that stays gives its batch a delete horizon, so far from now as `delete.retention.ms` says;
  when that has passed, tombstones go. So does a marker, from when nothing of its transaction was left.
- What an aborted transaction wrote goes at once.
- The last batch of an active producer stays, and the one in front of the high watermark, if need be without
  records: of the first we know the producer's sequence, of the second where the log ends.
- A batch keeps its first and last offset, whatever goes.

A batch from `first_uncleanable_offset` on stays as it is, also where that offset is inside a segment. (Kafka
lets it be the start of a segment always, and its own `Cleaner` would read such a segment to its end.)
"""

from __future__ import annotations

from konvene.codec.batches import (
    HEADER_SIZE,
    BatchHeader,
    ControlType,
    control_type,
    emptied,
    records,
    reduced,
)
from konvene.codec.compression import decompress
from konvene.codec.errors import CorruptBatch
from konvene.log.cleaner.contract import Stats, Task
from konvene.log.cleaner.offset_map import OffsetMap
from konvene.log.cleaner.record_cursor import Spans, keys, written_anew
from konvene.log.cleaner.transactions import Transactions

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
COMPRESSION, LOG_APPEND_TIME = 0x07, 0x08
UNPACKED_LIMIT = 2**31 - 9
"""What a batch may unpack to, when it has been let into the log."""


def marker_kind(batch: bytes | memoryview, header: BatchHeader) -> ControlType | None:
    """What a control batch says; None if it is empty."""
    found = records(batch, header)
    return control_type(found[0]) if found else None


def unpacked(data: bytes, at: int, header: BatchHeader) -> tuple[bytes, int, int]:
    """The records of the batch at `at`, and from where to where they stand."""
    start, end = at + HEADER_SIZE, at + header.size
    if not header.attributes & COMPRESSION:
        return data, start, end
    body = decompress(header.compression, memoryview(data)[start:end], UNPACKED_LIMIT)
    return body, 0, len(body)


class Filter:
    """Decides batch by batch, in the order of the log."""

    __slots__ = ("_horizon", "_map", "_stats", "_task", "_transactions")

    def __init__(self, task: Task, offsets: OffsetMap, transactions: Transactions, stats: Stats) -> None:
        self._task = task
        self._map = offsets
        self._transactions = transactions
        self._stats = stats
        horizon = task.now_ms + task.delete_retention_ms
        #: Of tombstones that are met now; a time that nobody lives to see is none.
        self._horizon = horizon if horizon <= LONG_MAX else None

    def __repr__(self) -> str:
        return f"Filter({self._map}, {self._transactions})"

    def what_stays(self, data: bytes, at: int, header: BatchHeader) -> bytes | None:
        """Of the batch at `at`: the bytes that it is now, none if it goes, and None if it stays as it is."""
        gone = self._in_vain(data, at, header)
        if header.base_offset >= self._task.first_uncleanable_offset:
            self._stats.messages_read += header.record_count
            self._stats.messages_written += header.record_count
            return None
        horizon = header.delete_horizon
        discard = gone
        if header.is_control:
            discard = gone and horizon is not None and horizon <= self._task.now_ms
        keep_empty = self._says_something(header)
        if discard and not keep_empty:
            if header.is_control:
                self._stats.markers_removed += header.record_count
            self._stats.messages_read += header.record_count
            return b""
        return self._reduce(data, at, header, discard, keep_empty, gone and header.is_control)

    def _in_vain(self, data: bytes, at: int, header: BatchHeader) -> bool:
        """Whether it is of an aborted transaction, or the marker of one of which nothing is left."""
        if header.is_control:
            kind = marker_kind(memoryview(data)[at : at + header.size], header)
            return self._transactions.on_marker(header.producer_id, header.last_offset, kind)
        if header.is_transactional:
            return self._transactions.on_batch(header.producer_id, header.last_offset)
        return False

    def _says_something(self, header: BatchHeader) -> bool:
        """Whether it stays even without records."""
        if header.next_offset == self._task.high_watermark:
            return True
        if not header.has_producer_id:
            return False
        last = self._task.last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _reduce(
        self, data: bytes, at: int, header: BatchHeader, discard: bool, keep_empty: bool, idle_marker: bool
    ) -> bytes | None:
        """The batch without those of its records that go."""
        stats = self._stats
        stats.messages_read += header.record_count
        spans: Spans = []
        kept, tombstones = 0, False
        body, start, end = data, 0, 0
        if header.record_count and not discard:
            body, start, end = unpacked(data, at, header)
            if header.is_control:
                spans, kept = [(start, end)], header.record_count
            else:
                spans, kept, tombstones = self._pick(body, start, end, header)
        elif discard and header.is_control:
            stats.markers_removed += header.record_count
        if not kept:
            return emptied(header) if keep_empty else b""
        stats.messages_written += kept
        to_set = (tombstones or idle_marker) and header.delete_horizon is None
        if kept == header.record_count and not to_set:
            return None
        horizon = self._horizon if to_set else header.delete_horizon
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        left, count, base, newest = written_anew(body, spans, header.base_timestamp, stamped, horizon)
        if count != kept:
            raise CorruptBatch(f"{count} records where {kept} were counted")
        return reduced(header, left, count, base, newest if stamped is None else stamped, horizon is not None)

    def _pick(self, data: bytes, at: int, end: int, header: BatchHeader) -> tuple[Spans, int, bool]:
        """What of a batch of records stays, how many they are, and whether a tombstone is among them."""
        latest, found = self._map.latest_offset, self._map.entries.get
        passed = header.delete_horizon is not None and header.delete_horizon <= self._task.now_ms
        spans: Spans = []
        kept, tombstones = 0, False
        for offset, key, tombstone, start, stop in keys(
            data, at, end, header.record_count, header.base_offset
        ):
            if offset <= latest:
                if key is None:
                    # Those of the dirty part were counted when the map was made.
                    self._stats.invalid_messages_read += offset < self._task.first_dirty_offset
                    continue
                if offset < found(key, 0) >> 1:
                    continue
                if tombstone and passed:
                    self._stats.tombstones_removed += 1
                    continue
            kept += 1
            tombstones = tombstones or tombstone
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
        return spans, kept, tombstones
