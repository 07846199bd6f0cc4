"""Partitions that share groups read, in virtual time: lists of encoded batches.

The world appends records and deletes the beginning of logs. Some batches belong to transactions, which stay
open for a while and are then committed or aborted by a marker. An append completes delayed fetches, and so
does the end of a transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from konvene.broker.shares.share_partition import DelayedFetch
from konvene.codec.batches import Record, build, end_marker
from konvene.log.errors import OffsetOutOfRange
from konvene.log.producers import AbortedTransaction

MAX_BATCH_RECORDS = 8
NO_PRODUCER = -1
"""Producer id of a batch outside of transactions."""


class ReadLog:
    """The log of a partition that share groups read: a list of encoded batches in memory."""

    def __init__(self) -> None:
        self.start_offset = self.end_offset = 0
        self.records = 0
        """Number of records; markers have offsets, too, but are not counted."""
        self.open: dict[int, list[int]] = {}
        """Offsets of open transactions, by producer id."""
        self.aborted: list[AbortedTransaction] = []
        self.aborted_offsets: set[int] = set()
        self._bases: list[int] = []
        self._batches: list[bytes] = []

    def __repr__(self) -> str:
        return f"<log {self.start_offset}-{self.end_offset}>"

    def grow(
        self, records: int, size: int = MAX_BATCH_RECORDS, draw: Callable[[], int] = lambda: NO_PRODUCER
    ) -> list[int]:
        """Append batches of up to `size` records until the total of records ever appended is `records`.

        `draw` is called for the producer id of each batch. Return the ids of producers that began a
        transaction."""
        begun: list[int] = []
        while self.records < records:
            producer_id = draw()
            base, upto = self.end_offset, self.end_offset + min(records - self.records, size)
            entries = [Record(offset, 0, None, b"%d" % offset, ()) for offset in range(base, upto)]
            if producer_id == NO_PRODUCER:
                batch = build(entries)
            else:
                batch = build(
                    entries, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
                )
                if producer_id not in self.open:
                    begun.append(producer_id)
                self.open.setdefault(producer_id, []).extend(range(base, upto))
            self._add(base, batch, upto)
            self.records += upto - base
        return begun

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Append the marker that ends the open transaction of a producer."""
        offsets, base = self.open.pop(producer_id), self.end_offset
        marker = end_marker(
            committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0,
            base_offset=base,
        )  # fmt: skip
        self._add(base, marker, base + 1)
        if not committed:
            self.aborted.append(AbortedTransaction(producer_id, offsets[0], base, base))
            self.aborted_offsets.update(offsets)

    def aborted_transactions(self, offset: int, upto: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the offsets from `offset` up to, but without,
        `upto`."""
        return [each for each in self.aborted if each.last_offset >= offset and each.first_offset < upto]

    def _add(self, base: int, batch: bytes, upto: int) -> None:
        self._bases.append(base)
        self._batches.append(batch)
        self.end_offset = upto

    def lose_beginning(self, offset: int) -> None:
        """Move the start offset of the log forward to `offset`, but not beyond its end, as retention or
        DeleteRecords does."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def read(self, offset: int, max_bytes: int, *, upto: int, min_one: bool = True) -> bytes:
        """Return whole batches of up to `max_bytes`, beginning with the one that contains `offset`, and none
        that begins at `upto` or later. With `min_one` the first batch may be larger. Raises
        `OffsetOutOfRange`."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not in {self!r}")
        index = bisect_right(self._bases, offset) - 1
        found: list[bytes] = []
        size = 0
        while 0 <= index < len(self._bases) and offset < self.end_offset and self._bases[index] < upto:
            batch = self._batches[index]
            if size + len(batch) > max_bytes and (found or not min_one):
                break
            found.append(batch)
            size += len(batch)
            index += 1
        return b"".join(found)

    def last_stable_offset(self, end: int) -> int:
        return min([end, *(offsets[0] for offsets in self.open.values())])


class ReadPartition:
    """A partition that share groups read, with its log and its delayed fetches. This node is its leader."""

    leader_epoch = 0

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.log = ReadLog()
        self.waiting: dict[DelayedFetch, None] = {}

    def __repr__(self) -> str:
        return f"<{self.topic}: {self.log!r}>"

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    def at_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return None: no record has this timestamp or a later one, because all have timestamp 0."""
        return None

    def grow(self, records: int, draw: Callable[[], int] = lambda: NO_PRODUCER) -> list[int]:
        """Append records until the total ever appended is `records`, and complete delayed fetches; see
        `ReadLog.grow`."""
        end = self.log.end_offset
        begun = self.log.grow(records, draw=draw)
        if self.log.end_offset > end:
            self._complete_fetches()
        return begun

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Append the marker that ends a producer's transaction, and complete fetches that waited for it."""
        self.log.end_transaction(producer_id, committed)
        self._complete_fetches()

    def _complete_fetches(self) -> None:
        for waiting in list(self.waiting):
            waiting.try_complete()
