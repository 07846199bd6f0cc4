"""Fills the offset map from the dirty part of a log, as Kafka's `buildOffsetMapForSegment`.

Records from `first_uncleanable_offset` on and records of aborted transactions are skipped. The map may become
full inside a batch: the next cleaning then begins at the first record that did not fit.

Plain batches (neither compressed nor transactional) are processed in one long loop for speed.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from konvene.codec.batches import HEADER_SIZE, MAGIC, PREFIX_SIZE, BatchHeader, read_header
from konvene.codec.errors import CorruptBatch
from konvene.log.cleaner.contract import CleanerStats, CleaningTask
from konvene.log.cleaner.offset_map import MOST_BESIDE, OffsetMap
from konvene.log.cleaner.record_cursor import collect_keys, iterate_keys
from konvene.log.cleaner.record_filter import decompressed_records, marker_kind
from konvene.log.cleaner.transactions import CleanedTransactions

_NOT_PLAIN = 0x37
"""Attribute bits of a compressed or transactional batch, or a marker."""
_FIELDS = struct.Struct(">qi4xbIhi30xi")
_COVERED_AT = 21


class OffsetMapBuilder:
    """A consumer of the dirty part's batches that adds their keys to the offset map.

    `done` is set when the end of the dirty part is reached or the map is `full`.
    """

    __slots__ = ("_offsets", "_stats", "_task", "_transactions", "at", "done", "full")

    def __init__(self, task: CleaningTask, offsets: OffsetMap, stats: CleanerStats) -> None:
        self._task = task
        self._offsets = offsets
        self._stats = stats
        self._transactions = CleanedTransactions(task.aborted, task.first_dirty_offset)
        self.at = 0
        self.done = self.full = False

    def take(self, data: bytes) -> None:
        """Process the whole batches of `data` from `self.at` on; set `self.at` to the end of the last one."""
        view, end, at = memoryview(data), len(data), self.at
        start, stop = self._task.first_dirty_offset, self._task.first_uncleanable_offset
        offsets, entries, latest = self._offsets, self._offsets.entries, self._offsets.latest_offset
        keys_left, bytes_left = offsets.free_space
        known, noted, keyless = len(entries), 0, 0
        while at + HEADER_SIZE <= end:
            self.at = at
            base, length, magic, crc, attributes, delta, count = _FIELDS.unpack_from(data, at)
            after = at + PREFIX_SIZE + length
            if magic != MAGIC or length < HEADER_SIZE - PREFIX_SIZE:
                read_header(data, at)
            if after > end:
                break
            if base >= stop:
                self.done = True
                break
            if crc32c(view[at + _COVERED_AT : after]) != crc:
                raise CorruptBatch(f"the checksum of the batch at offset {base} does not hold")
            if (
                not attributes & _NOT_PLAIN
                and base >= start
                and known + count <= keys_left
                and length + count * MOST_BESIDE <= bytes_left
            ):
                if count:
                    keyless += collect_keys(entries, data, at + HEADER_SIZE, after, count, base << 1)
                    noted += count
                    if len(entries) != known:
                        offsets.count_new(known)
                        known = len(entries)
                        keys_left, bytes_left = offsets.free_space
                latest = base + delta
            else:
                offsets.latest_offset = latest
                self._take_batch(data, at, read_header(data, at))
                if self.full:
                    break
                known, latest = len(entries), offsets.latest_offset
                keys_left, bytes_left = offsets.free_space
            at = after
        self.at = at
        if not self.full:
            offsets.latest_offset = latest
        self._stats.map_messages_read += noted
        self._stats.invalid_messages_read += keyless

    def _take_batch(self, data: bytes, at: int, header: BatchHeader) -> None:
        """Process a batch that `take` cannot: compressed, transactional, partly clean, or with more keys than
        are sure to fit."""
        start, offsets, count = self._task.first_dirty_offset, self._offsets, header.record_count
        if header.is_control:
            kind = marker_kind(memoryview(data)[at : at + header.size], header)
            self._transactions.on_marker(header.producer_id, header.last_offset, kind)
            self._stats.map_messages_read += 1
        elif header.is_transactional and self._transactions.on_batch(header.producer_id, header.last_offset):
            self._stats.map_messages_read += count
        elif count:
            body, first, end = decompressed_records(data, at, header)
            if header.base_offset >= start and offsets.fits(count, end - first):
                known = len(offsets)
                keyless = collect_keys(offsets.entries, body, first, end, count, header.base_offset << 1)
                offsets.count_new(known)
                self._stats.map_messages_read += count
                self._stats.invalid_messages_read += keyless
            elif not self._take_one_by_one(body, first, end, header):
                self.full = self.done = True
                return
        if header.last_offset >= start:
            offsets.latest_offset = header.last_offset

    def _take_one_by_one(self, body: bytes, first: int, end: int, header: BatchHeader) -> bool:
        """Add the records in `body[first:end]` one by one; return False if the map becomes full meanwhile."""
        start, keyless = self._task.first_dirty_offset, 0
        for offset, key, tombstone, _, _ in iterate_keys(
            body, first, end, header.record_count, header.base_offset
        ):
            if offset >= start:
                if key is None:
                    keyless += 1
                elif self._offsets.put(key, offset, tombstone):
                    self._stats.invalid_messages_read += keyless
                    keyless = 0
                else:
                    return False
            self._stats.map_messages_read += 1
        self._stats.invalid_messages_read += keyless
        return True
