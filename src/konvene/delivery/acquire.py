"""Acquisition by a member of records that were read from the log: new ones and released ones.

Whole batches of the log are acquired, even if they have more records than were requested; in the mode
RECORD_LIMIT (KIP-1206) the excess of a batch stays available. Records that were delivered often are acquired
in smaller and smaller parts, and for the last delivery one by one, so that one bad record does not take its
batch with it. Offsets that compaction removed from the log are archived.

All decisions follow Kafka's `SharePartition.acquire`, except for gaps. Kafka remembers where the first gap
begins, and forgets all gaps when something is read behind them; here each gap is remembered until it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from konvene.codec.batches import BatchHeader
from konvene.delivery.contract import Acquired, AcquireMode, RecordState, Terms
from konvene.delivery.runs import NO_LOCK, Batch, Cell
from konvene.delivery.window import Window

AVAILABLE, ACQUIRED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVED

MIN_THROTTLE = 2


def throttle_threshold(limit: int) -> int:
    """Return the delivery count from which on a batch is not acquired as a whole, but in parts.

    `limit`: the delivery count limit of the group."""
    return max(MIN_THROTTLE, -(-limit // 2))


class Acquisition:
    """The parameters and results of one `SharePartition.acquire` call."""

    __slots__ = (
        "acquired", "batch_size", "count", "first", "headers", "is_limited", "last", "limit", "lock_end_ms",
        "max_records", "member_id", "now_ms", "throttle", "window",
    )  # fmt: skip

    def __init__(
        self,
        window: Window,
        terms: Terms,
        member_id: str,
        headers: Sequence[BatchHeader],
        mode: AcquireMode,
        batch_size: int,
        now_ms: int,
    ) -> None:
        self.window = window
        self.member_id = member_id
        self.headers = headers
        self.is_limited = mode == AcquireMode.RECORD_LIMIT
        self.batch_size = max(batch_size, 1)
        self.limit = terms.delivery_count_limit
        self.throttle = throttle_threshold(self.limit)
        self.now_ms = now_ms
        self.lock_end_ms = now_ms + terms.lock_ms
        self.first = headers[0].base_offset
        self.last = headers[-1].last_offset
        self.max_records = 0
        self.acquired: list[Acquired] = []
        self.count = 0

    def run(self, fetch_offset: int, max_records: int, max_locks: int) -> None:
        """Acquire records and list them in `acquired`. The batches were read from `fetch_offset`.

        `max_records`: the limit of the request; `max_locks`: how many offsets the window may contain. When it
        is full, only available records in the window are acquired."""
        window = self.window
        self.max_records = min(max_records, max_locks - window.in_flight)
        if self.max_records <= 0:
            if fetch_offset > window.end_offset:
                return
            # No new locks are allowed, but records in the window may be available again.
            self.max_records = min(max_records, window.end_offset - fetch_offset + 1)
            self.last = min(self.last, window.end_offset)
        frontier = window.frontier
        if self.first < frontier:
            self._acquire_window()
        if self.count < self.max_records and self.last >= frontier:
            self._acquire_new(max(self.first, frontier), self.last)

    # --- offsets in the window ---

    def _acquire_window(self) -> None:
        """Acquire available records and gaps that the read batches cover."""
        window, first = self.window, self.first
        cells = window.cells
        at = window.find(first)
        while self.count < self.max_records and at < len(cells) and cells[at].first <= self.last:
            cell = cells[at]
            if window.gaps and self._acquire_gaps(first, cell.first - 1):
                if self.count >= self.max_records:
                    return
                at = window.floor(cell.first)
            if cell.batch is None:
                self._acquire_batch(cell)
                upto = cell.last if cell.batch is None else cell.batch.last
            else:
                self._acquire_split_batch(cell.batch)
                upto = cell.batch.last
            at = window.floor(upto) + 1
        if self.count < self.max_records and window.gaps:
            self._acquire_gaps(first, min(self.last, window.end_offset))

    def _acquire_gaps(self, first: int, last: int) -> bool:
        """Acquire offsets in gaps of the window between two offsets, until `max_records` are acquired.

        Return True if there were any. A gap was delivered by a former leader, which did not write its
        state."""
        found = False
        for begin, end in tuple(self.window.gaps):
            begin, end = max(begin, first), min(end, last)
            if begin <= end and self.count < self.max_records:
                self._acquire_new(begin, end)
                found = True
        return found

    def _acquire_batch(self, cell: Cell) -> None:
        """Acquire a cell that was never split, or a part of it if it is throttled or too large."""
        if cell.state is not AVAILABLE or cell.change is not None:
            return
        throttled = cell.count >= self.throttle
        if throttled and self.count:
            self.max_records = 0
            return
        too_many = self.is_limited and cell.last - cell.first >= self.max_records - self.count
        if throttled or too_many or cell.first < self.first or cell.last > self.last:
            if self._acquire_part(Batch(cell.first, cell.last)) and throttled:
                self.max_records = 0
            return
        self._lock(cell)
        self.acquired.append(Acquired(cell.first, cell.last, cell.count))
        self.count += cell.last - cell.first + 1

    def _acquire_split_batch(self, batch: Batch) -> None:
        """Acquire available records of a batch that was split into several cells."""
        max_count = 0
        for cell in self.window.between(max(self.first, batch.first), min(self.last, batch.last)):
            if cell.state is AVAILABLE and cell.change is None and cell.count > max_count:
                max_count = cell.count
        throttled = max_count >= self.throttle
        if throttled and (self.count or self._acquire_part(batch)):
            self.max_records = 0
        elif not throttled:
            self._acquire_part(batch)

    def _acquire_part(self, batch: Batch) -> int:
        """Acquire available records of a batch that cannot be acquired as a whole; return their number.

        There are fewer the more often they were delivered."""
        window, cells = self.window, self.window.cells
        left = self.max_records - self.count
        got, cap = 0, -1
        at = window.find(max(self.first, batch.first))
        last = min(self.last, batch.last)
        before: Cell | None = None
        while at < len(cells) and cells[at].first <= last:
            cell = cells[at]
            if cell.state is not AVAILABLE or cell.change is not None:
                at += 1
                continue
            last_time = self.limit > 2 and cell.count == self.limit - 1
            if last_time and got:
                break
            if cap < 0 and cell.count >= self.throttle:
                cap = max(1, (batch.last - batch.first + 1) >> (cell.count - self.throttle + 1))
            first = max(cell.first, self.first)
            take = self._part_size(min(cell.last, last) - first + 1, got, left, cap, last_time)
            cell = window.cut_out(cell, first, first + take - 1)
            self._lock(cell)
            got += take
            if before is not None and before.last == first - 1 and before.count == cell.count:
                window.join(before, cell)
                _, _, count = self.acquired[-1]
                self.acquired[-1] = Acquired(self.acquired[-1].first_offset, before.last, count)
            else:
                self.acquired.append(Acquired(first, cell.last, cell.count))
                before = cell
            at = window.floor(before.last) + 1
            if last_time or got == cap or (self.is_limited and got == left):
                break
        self.count += got
        return got

    def _part_size(self, available: int, got: int, left: int, cap: int, last_time: bool) -> int:
        if last_time:
            return 1
        if self.is_limited:
            available = min(available, left - got)
        return min(available, cap - got) if got < cap else available

    def _lock(self, cell: Cell) -> None:
        window = self.window
        window.move(cell, ACQUIRED, self.member_id)
        cell.count += 1
        cell.acquired_ms = self.now_ms
        window.locks.lock(cell, self.lock_end_ms)

    # --- offsets beyond the window ---

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire offsets that are not in the window yet, up to `last` or as far as `max_records` allow.

        If that would end within a batch of the log, the batch is acquired as a whole, or in the mode
        RECORD_LIMIT its excess becomes available."""
        max_records = self.max_records - self.count
        if max_records < last - first + 1:
            last = min(last, self._batch_end(first + max_records - 1))
        if self.is_limited:
            upto = min(last, first + max_records - 1)
            batch = Batch(first, last) if upto < last else None
            self._add_cell(first, upto, batch)
            if batch is not None:
                self.window.add(Cell(upto + 1, last, AVAILABLE, 0, batch=batch))
            return
        if last - first + 1 > self.batch_size:
            begin = first
            for header in self.headers:
                base = header.base_offset
                if base > last:
                    break
                if base - begin >= self.batch_size:
                    self._add_cell(begin, base - 1)
                    begin = base
            first = begin
        self._add_cell(first, last)

    def _add_cell(self, first: int, last: int, batch: Batch | None = None) -> None:
        window = self.window
        cell = Cell(first, last, ACQUIRED, 1, self.member_id, batch, self.now_ms)
        window.add(cell)
        window.locks.lock(cell, self.lock_end_ms)
        self.acquired.append(Acquired(first, last, 1))
        self.count += last - first + 1

    def _batch_end(self, offset: int) -> int:
        """Return the last offset of the batch that contains `offset`, or `offset` if none does."""
        headers = self.headers
        at = bisect_right(headers, offset, key=_base_offset) - 1
        return max(offset, headers[at].last_offset) if at >= 0 else offset


def _base_offset(header: BatchHeader) -> int:
    return header.base_offset


def archive_missing(window: Window, fetch_offset: int, base_offset: int) -> bool:
    """Archive offsets that compaction removed: those from `fetch_offset` up to `base_offset`, exclusive.

    The log was read from `fetch_offset`, and its first batch began at `base_offset`. Return True if anything
    changed."""
    if fetch_offset >= base_offset or fetch_offset >= window.frontier:
        return False
    is_changed = bool(window.gaps) and window.close_gaps(fetch_offset, base_offset - 1)
    for cell in window.between(fetch_offset, base_offset - 1):
        if cell.state is AVAILABLE:
            part = window.cut_out(cell, max(cell.first, fetch_offset), min(cell.last, base_offset - 1))
            window.move(part, ARCHIVED)
            part.lock_end_ms = NO_LOCK
            is_changed = True
    return is_changed
