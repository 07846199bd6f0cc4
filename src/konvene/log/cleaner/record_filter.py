"""Decides which records of a batch remain: Kafka's `Cleaner.checkBatchRetention`, `shouldRetainRecord` and
`MemoryRecords.filterTo`.

- A record remains if the offset map has no later record of its key, or if it is above the map's last offset.
  A record without a key remains only in the latter case.
- A remaining tombstone gives its batch a delete horizon, `delete.retention.ms` from now. A cleaning after the
  horizon removes the tombstones of the batch. A transaction's marker gets a horizon when no record of the
  transaction is left, and is removed after it.
- Records of aborted transactions are removed at once.
- The last batch of a producer and the batch that ends at the high watermark remain, if need be without
  records: the former has the producer's sequence number, the latter the log's end.
- A batch keeps its first and last offset.

A batch at or above `first_uncleanable_offset` is unchanged, even if that offset lies inside a segment. (In
Kafka it is always a segment's base offset.)
"""

from __future__ import annotations

from konvene.codec.batches import (
    HEADER_SIZE,
    BatchHeader,
    ControlType,
    control_type,
    records,
    with_records,
    without_records,
)
from konvene.codec.compression import decompress
from konvene.codec.errors import CorruptBatch
from konvene.log.cleaner.contract import CleanerStats, CleaningTask
from konvene.log.cleaner.offset_map import OffsetMap
from konvene.log.cleaner.record_cursor import Spans, iterate_keys, rebase_timestamps
from konvene.log.cleaner.transactions import CleanedTransactions

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
COMPRESSION, LOG_APPEND_TIME = 0x07, 0x08
UNPACKED_LIMIT = 2**31 - 9
"""Maximum decompressed size of a stored batch."""


def marker_kind(batch: bytes | memoryview, header: BatchHeader) -> ControlType | None:
    """Return the type of a control batch; None if it has no record."""
    found = records(batch, header)
    return control_type(found[0]) if found else None


def decompressed_records(data: bytes, at: int, header: BatchHeader) -> tuple[bytes, int, int]:
    """Return `(data, start, end)`: the decompressed records of the batch at `at`, and where they are."""
    start, end = at + HEADER_SIZE, at + header.size
    if not header.attributes & COMPRESSION:
        return data, start, end
    body = decompress(header.compression, memoryview(data)[start:end], UNPACKED_LIMIT)
    return body, 0, len(body)


class RecordFilter:
    """A filter that is called with each batch in log order and returns what remains of it."""

    __slots__ = ("_horizon", "_map", "_stats", "_task", "_transactions")

    def __init__(
        self, task: CleaningTask, offsets: OffsetMap, transactions: CleanedTransactions, stats: CleanerStats
    ) -> None:
        self._task = task
        self._map = offsets
        self._transactions = transactions
        self._stats = stats
        horizon = task.now_ms + task.delete_retention_ms
        #: Delete horizon for tombstones seen now; None if it exceeds the range of timestamps.
        self._horizon = horizon if horizon <= LONG_MAX else None

    def __repr__(self) -> str:
        return f"Filter({self._map}, {self._transactions})"

    def filter_batch(self, data: bytes, at: int, header: BatchHeader) -> bytes | None:
        """Return the new bytes of the batch at `at`, empty if it is removed, or None if it is unchanged."""
        aborted = self._is_discardable(data, at, header)
        if header.base_offset >= self._task.first_uncleanable_offset:
            self._stats.messages_read += header.record_count
            self._stats.messages_written += header.record_count
            return None
        horizon = header.delete_horizon
        discard = aborted
        if header.is_control:
            discard = aborted and horizon is not None and horizon <= self._task.now_ms
        keep_empty = self._must_keep_empty(header)
        if discard and not keep_empty:
            if header.is_control:
                self._stats.markers_removed += header.record_count
            self._stats.messages_read += header.record_count
            return b""
        return self._filter_records(data, at, header, discard, keep_empty, aborted and header.is_control)

    def _is_discardable(self, data: bytes, at: int, header: BatchHeader) -> bool:
        """Return True if all records of the batch may be removed: its transaction was aborted, or it is a
        marker whose transaction has no batch left."""
        if header.is_control:
            kind = marker_kind(memoryview(data)[at : at + header.size], header)
            return self._transactions.on_marker(header.producer_id, header.last_offset, kind)
        if header.is_transactional:
            return self._transactions.on_batch(header.producer_id, header.last_offset)
        return False

    def _must_keep_empty(self, header: BatchHeader) -> bool:
        """Return True if the batch must remain even without records: it is the last one of its producer, or
        ends at the high watermark."""
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

    def _filter_records(
        self, data: bytes, at: int, header: BatchHeader, discard: bool, keep_empty: bool, idle_marker: bool
    ) -> bytes | None:
        """Return the batch with its remaining records, as `filter_batch` does.

        With `discard` no record remains; with `keep_empty` a batch without records is kept. `idle_marker` is
        True for a marker that needs a delete horizon.
        """
        stats = self._stats
        stats.messages_read += header.record_count
        spans: Spans = []
        kept, tombstones = 0, False
        body, start, end = data, 0, 0
        if header.record_count and not discard:
            body, start, end = decompressed_records(data, at, header)
            if header.is_control:
                spans, kept = [(start, end)], header.record_count
            else:
                spans, kept, tombstones = self._select_records(body, start, end, header)
        elif discard and header.is_control:
            stats.markers_removed += header.record_count
        if not kept:
            return without_records(header) if keep_empty else b""
        stats.messages_written += kept
        to_set = (tombstones or idle_marker) and header.delete_horizon is None
        if kept == header.record_count and not to_set:
            return None
        horizon = self._horizon if to_set else header.delete_horizon
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        left, count, base, newest = rebase_timestamps(body, spans, header.base_timestamp, stamped, horizon)
        if count != kept:
            raise CorruptBatch(f"{count} records where {kept} were counted")
        return with_records(
            header, left, count, base, newest if stamped is None else stamped, horizon is not None
        )

    def _select_records(self, data: bytes, at: int, end: int, header: BatchHeader) -> tuple[Spans, int, bool]:
        """Return the ranges of the remaining records, their number, and True if a tombstone is among them."""
        latest, found = self._map.latest_offset, self._map.entries.get
        passed = header.delete_horizon is not None and header.delete_horizon <= self._task.now_ms
        spans: Spans = []
        kept, tombstones = 0, False
        for offset, key, tombstone, start, stop in iterate_keys(
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
