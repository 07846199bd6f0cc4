"""The partitions that share groups read, in virtual time: batches of real bytes in a list.

They grow where the world says that records came, and lose their beginning where it says so. Some batches are
of transactions, which stay open for a while and are then committed or aborted by a marker. Whoever waits for
a partition to grow is woken, also where nothing came but the end of a transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from konvene.broker.shares.share_partition import DelayedFetch
from konvene.codec.batches import Record, build, end_marker
from konvene.log.errors import OffsetOutOfRange
from konvene.log.producers import AbortedTransaction

MOST_IN_A_BATCH = 8
NOBODY = -1
"""The producer id of a batch that is in no transaction."""


class ReadLog:
    """The log of a partition, as far as a share partition looks at it."""

    def __init__(self) -> None:
        self.start_offset = self.end_offset = 0
        self.records = 0
        """How many came; each marker has an offset as well."""
        self.open: dict[int, list[int]] = {}
        """The offsets of transactions that are open, by producer."""
        self.aborted: list[AbortedTransaction] = []
        self.aborted_offsets: set[int] = set()
        self._bases: list[int] = []
        self._batches: list[bytes] = []

    def __repr__(self) -> str:
        return f"<log {self.start_offset}-{self.end_offset}>"

    def grow(
        self, records: int, size: int = MOST_IN_A_BATCH, draw: Callable[[], int] = lambda: NOBODY
    ) -> list[int]:
        """So many records in all, in batches of that size; `draw` says in whose transaction each batch is.
        The producers whose transactions begin by it."""
        begun: list[int] = []
        while self.records < records:
            producer_id = draw()
            base, upto = self.end_offset, self.end_offset + min(records - self.records, size)
            entries = [Record(offset, 0, None, b"%d" % offset, ()) for offset in range(base, upto)]
            if producer_id == NOBODY:
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
        """The marker comes."""
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
        """As the broker's log tells them."""
        return [gone for gone in self.aborted if gone.last_offset >= offset and gone.first_offset < upto]

    def _add(self, base: int, batch: bytes, upto: int) -> None:
        self._bases.append(base)
        self._batches.append(batch)
        self.end_offset = upto

    def lose_beginning(self, offset: int) -> None:
        """As retention, or DeleteRecords."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def read(self, offset: int, max_bytes: int, *, upto: int, min_one: bool = True) -> bytes:
        """Whole batches from the one with this offset. Raises `OffsetOutOfRange`."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not in {self!r}")
        at = bisect_right(self._bases, offset) - 1
        found: list[bytes] = []
        size = 0
        while 0 <= at < len(self._bases) and offset < self.end_offset and self._bases[at] < upto:
            batch = self._batches[at]
            if size + len(batch) > max_bytes and (found or not min_one):
                break
            found.append(batch)
            size += len(batch)
            at += 1
        return b"".join(found)

    def last_stable_offset(self, end: int) -> int:
        return min([end, *(offsets[0] for offsets in self.open.values())])


class ReadPartition:
    """A partition of a topic, which this node leads."""

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
        """All records are of the beginning of time."""
        return None

    def grow(self, records: int, draw: Callable[[], int] = lambda: NOBODY) -> list[int]:
        """There are so many records now; see `ReadLog.grow`."""
        end = self.log.end_offset
        begun = self.log.grow(records, draw=draw)
        if self.log.end_offset > end:
            self._wake()
        return begun

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Its marker came, and what was held up by it may be read."""
        self.log.end_transaction(producer_id, committed)
        self._wake()

    def _wake(self) -> None:
        for waiting in list(self.waiting):
            waiting.try_complete()
