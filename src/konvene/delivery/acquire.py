"""What a member gets of the batches that were read: records that nobody had, and those that were given back.

Whole batches of the log are given out, even if they are more than was asked for; in the mode RECORD_LIMIT
(KIP-1206) what is too much of a batch stays available. Records that were delivered often are given out in
smaller and smaller parts, and for the last time each one alone, so that one bad record does not take its
batch with it. What the log no longer has of what was read from it (it was compacted) is archived.

All decisions follow Kafka's `SharePartition.acquire`, but for gaps: Kafka remembers where the first of them
begins, and forgets them all when something is read from behind them; here each one is known until it is
read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from konvene.codec.batches import BatchHeader
from konvene.delivery.contract import Acquired, AcquireMode, RecordState, Terms
from konvene.delivery.runs import NO_LOCK, Batch, Cell
from konvene.delivery.window import Window

AVAILABLE, ACQUIRED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVED

FEWEST_BEFORE_THROTTLE = 2


def throttle_from(limit: int) -> int:
    """The number of deliveries from which on a batch is given out in parts."""
    return max(FEWEST_BEFORE_THROTTLE, -(-limit // 2))


class Acquisition:
    """One call of `acquire`."""

    __slots__ = (
        "acquired", "batch_size", "count", "first", "headers", "is_limited", "last", "limit", "lock_end_ms",
        "member_id", "most", "now_ms", "throttle", "window",
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
        self.throttle = throttle_from(self.limit)
        self.now_ms = now_ms
        self.lock_end_ms = now_ms + terms.lock_ms
        self.first = headers[0].base_offset
        self.last = headers[-1].last_offset
        self.most = 0
        self.acquired: list[Acquired] = []
        self.count = 0

    def run(self, fetch_offset: int, max_records: int, max_locks: int) -> None:
        """Acquire what can be: it is in `acquired` then. `fetch_offset` is where the log was read."""
        window = self.window
        self.most = min(max_records, max_locks - window.in_flight)
        if self.most <= 0:
            if fetch_offset > window.end_offset:
                return
            # There is no room for more, but for what is in the window and was given back.
            self.most = min(max_records, window.end_offset - fetch_offset + 1)
            self.last = min(self.last, window.end_offset)
        frontier = window.frontier
        if self.first < frontier:
            self._window()
        if self.count < self.most and self.last >= frontier:
            self._new(max(self.first, frontier), self.last)

    # --- what was read before ---

    def _window(self) -> None:
        """Go through the cells and the gaps that the batches cover."""
        window, first = self.window, self.first
        cells = window.cells
        at = window.find(first)
        while self.count < self.most and at < len(cells) and cells[at].first <= self.last:
            cell = cells[at]
            if window.gaps and self._gaps(first, cell.first - 1):
                if self.count >= self.most:
                    return
                at = window.floor(cell.first)
            if cell.batch is None:
                self._whole(cell)
                upto = cell.last if cell.batch is None else cell.batch.last
            else:
                self._tracked(cell.batch)
                upto = cell.batch.last
            at = window.floor(upto) + 1
        if self.count < self.most and window.gaps:
            self._gaps(first, min(self.last, window.end_offset))

    def _gaps(self, first: int, last: int) -> bool:
        """Acquire the gaps that lie between these offsets, as long as more may be acquired."""
        found = False
        for begin, end in tuple(self.window.gaps):
            begin, end = max(begin, first), min(end, last)
            if begin <= end and self.count < self.most:
                self._new(begin, end)
                found = True
        return found

    def _whole(self, cell: Cell) -> None:
        """A cell that is a batch: acquire all of it if that is possible, or a part."""
        if cell.state is not AVAILABLE or cell.change is not None:
            return
        throttled = cell.count >= self.throttle
        if throttled and self.count:
            self.most = 0
            return
        too_many = self.is_limited and cell.last - cell.first >= self.most - self.count
        if throttled or too_many or cell.first < self.first or cell.last > self.last:
            if self._part(Batch(cell.first, cell.last)) and throttled:
                self.most = 0
            return
        self._take(cell)
        self.acquired.append(Acquired(cell.first, cell.last, cell.count))
        self.count += cell.last - cell.first + 1

    def _tracked(self, batch: Batch) -> None:
        """A batch of several cells."""
        often = 0
        for cell in self.window.between(max(self.first, batch.first), min(self.last, batch.last)):
            if cell.state is AVAILABLE and cell.change is None and cell.count > often:
                often = cell.count
        throttled = often >= self.throttle
        if throttled and (self.count or self._part(batch)):
            self.most = 0
        elif not throttled:
            self._part(batch)

    def _part(self, batch: Batch) -> int:
        """Acquire what is available of a batch, as much as may be given out at once. How many those are."""
        window, cells = self.window, self.window.cells
        left = self.most - self.count
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
            take = self._how_many(min(cell.last, last) - first + 1, got, left, cap, last_time)
            cell = window.cut_out(cell, first, first + take - 1)
            self._take(cell)
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

    def _how_many(self, there: int, got: int, left: int, cap: int, last_time: bool) -> int:
        if last_time:
            return 1
        if self.is_limited:
            there = min(there, left - got)
        return min(there, cap - got) if got < cap else there

    def _take(self, cell: Cell) -> None:
        window = self.window
        window.move(cell, ACQUIRED, self.member_id)
        cell.count += 1
        cell.acquired_ms = self.now_ms
        window.locks.lock(cell, self.lock_end_ms)

    # --- what was not read before ---

    def _new(self, first: int, last: int) -> None:
        """Acquire offsets of which nothing is known, to the end of a batch of the log."""
        most = self.most - self.count
        if most < last - first + 1:
            last = min(last, self._batch_end(first + most - 1))
        if self.is_limited:
            upto = min(last, first + most - 1)
            batch = Batch(first, last) if upto < last else None
            self._add(first, upto, batch)
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
                    self._add(begin, base - 1)
                    begin = base
            first = begin
        self._add(first, last)

    def _add(self, first: int, last: int, batch: Batch | None = None) -> None:
        window = self.window
        cell = Cell(first, last, ACQUIRED, 1, self.member_id, batch, self.now_ms)
        window.add(cell)
        window.locks.lock(cell, self.lock_end_ms)
        self.acquired.append(Acquired(first, last, 1))
        self.count += last - first + 1

    def _batch_end(self, offset: int) -> int:
        """The last offset of the batch of the log that holds this one; itself where none does."""
        headers = self.headers
        at = bisect_right(headers, offset, key=_base_offset) - 1
        return max(offset, headers[at].last_offset) if at >= 0 else offset


def _base_offset(header: BatchHeader) -> int:
    return header.base_offset


def pass_over_missing(window: Window, fetch_offset: int, base_offset: int) -> bool:
    """The log was asked for the first offset and has nothing before the second. Whether that is news."""
    if fetch_offset >= base_offset or fetch_offset >= window.frontier:
        return False
    news = bool(window.gaps) and window.close_gaps(fetch_offset, base_offset - 1)
    for cell in window.between(fetch_offset, base_offset - 1):
        if cell.state is AVAILABLE:
            part = window.cut_out(cell, max(cell.first, fetch_offset), min(cell.last, base_offset - 1))
            window.move(part, ARCHIVED)
            part.lock_end_ms = NO_LOCK
            news = True
    return news
