"""Scan of a topic's partitions, merged by timestamp: oldest records first, or newest first.

Each partition is read in the order of its offsets, in either direction; of the next records of all partitions
the one with the lowest (or highest) timestamp is returned. A scan ends at bounds that are given at the start,
so that it ends although records are written. It keeps a limited amount of records in memory, may be cancelled
at any time, and is continued from `positions` by another scan.

To read backwards, a window of offsets before the position is fetched forwards. The next window is twice as
large, and smaller again if it has too many records: offsets may have large gaps after a compaction.
"""

from __future__ import annotations

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from konvene.client.consumer.fetch import (
    EARLIEST,
    LEADER_MOVED,
    Fetched,
    fetch,
    list_offsets,
    read_error,
    timestamp_type,
)
from konvene.client.errors import ClientError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.batches import Record, TimestampType
from konvene.errors import Errors

__all__ = ["Bounds", "Scan", "Scanned"]

_BUFFERED_BYTES = 64 * 1024 * 1024
"""Approximate size of the records in memory, of all partitions."""
_FETCHED_BYTES = 1024 * 1024
_SMALLEST_FETCH = 64 * 1024
_WINDOW_RECORDS = 5_000
_FIRST_WINDOW = 32
_WAIT_MS = 100


class Bounds(NamedTuple):
    """Offsets of a partition to scan: from `start` to before `end`."""

    start: int
    end: int


class Scanned(NamedTuple):
    partition: int
    record: Record
    timestamp_type: TimestampType


class Scan:
    """A scan of partitions of a topic; `read` returns the next record.

    Fetches use connections of their own; call `close` at the end."""

    def __init__(
        self, cluster: Cluster, topic: str, bounds: Mapping[int, Bounds], *, newest_first: bool = False
    ) -> None:
        self.topic = topic
        self.newest_first = newest_first
        self.error: ClientError | None = None
        """The last error after which a fetch was repeated."""
        self._cluster = cluster
        share = max(_SMALLEST_FETCH, _BUFFERED_BYTES // max(len(bounds), 1))
        self._fetch_bytes = max(_SMALLEST_FETCH, min(_FETCHED_BYTES, share // 2))
        self._parts: dict[int, _Part] = {
            each: _Descending(*bounds[each], share) if newest_first else _Ascending(*bounds[each])
            for each in sorted(bounds)
        }
        self._heads: list[tuple[int, int]] = []
        self._empty = set(self._parts)

    def __repr__(self) -> str:
        order = "newest" if self.newest_first else "oldest"
        return f"<Scan of {self.topic}, {order} first: {len(self._heads)} of {len(self._parts)} partitions>"

    @property
    def positions(self) -> dict[int, int]:
        """The offset of each partition from which another scan continues: the next one, or with
        `newest_first` the one after the next."""
        return {each: part.position for each, part in self._parts.items()}

    @property
    def is_finished(self) -> bool:
        return not self._heads and not any(part.is_wanted for part in self._parts.values())

    async def read(self) -> Scanned | None:
        """Return the next record; None at the end. Raises `ClientError`."""
        while self._empty:
            wanted = [each for each in self._empty if self._parts[each].is_wanted]
            if wanted:
                await self._fetch(wanted)
            for each in sorted(self._empty):
                part = self._parts[each]
                if part.records:
                    self._push(each, part)
                if part.records or not part.is_wanted:
                    self._empty.discard(each)
        if not self._heads:
            return None
        _, number = heapq.heappop(self._heads)
        part = self._parts[number]
        record, kind = part.records.popleft()
        if part.records:
            self._push(number, part)
        else:
            self._empty.add(number)
        return Scanned(number, record, kind)

    def close(self) -> None:
        """Close the connections of the scan."""
        self._cluster.release(self)

    def _push(self, number: int, part: _Part) -> None:
        at = part.records[0][0].timestamp
        heapq.heappush(self._heads, (-at if self.newest_first else at, number))

    async def _fetch(self, wanted: Iterable[int]) -> None:
        """Fetch once for the partitions in `wanted`. After a retriable error nothing has changed."""
        positions = {TopicPartition(self.topic, each): self._parts[each].at for each in wanted}
        try:
            answers = await fetch(
                self._cluster, positions, max_wait_ms=_WAIT_MS, partition_max_bytes=self._fetch_bytes,
                lane=self,
            )  # fmt: skip
        except ClientError as problem:
            await self._pause(problem)
            return
        is_answered = False
        for got in answers:
            part = self._parts[got.partition.partition]
            if got.error_code == Errors.OFFSET_OUT_OF_RANGE:
                earliest = await list_offsets(self._cluster, {got.partition: EARLIEST})
                part.skip_to(earliest[got.partition].offset)
            elif got.error_code:
                error = read_error(got, part.at)
                if got.error_code not in LEADER_MOVED:
                    raise error
                await self._pause(error, known_as_retriable=True)
                return
            else:
                is_answered = is_answered or got.next_offset > part.at
                part.accept(got)
        if answers and not is_answered:
            await asyncio.sleep(0)  # Let a deadline of the caller pass.

    async def _pause(self, error: ClientError, *, known_as_retriable: bool = False) -> None:
        if not (error.retriable or known_as_retriable):
            raise error
        self.error = error
        self._cluster.forget_topic(self.topic)
        await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)


class _Part(ABC):
    """A partition of a scan: records that were fetched, in the order of the scan."""

    def __init__(self) -> None:
        self.records: deque[tuple[Record, TimestampType]] = deque()
        self.at = 0
        """Next offset to fetch."""

    @property
    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether records are to be fetched."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Offset from which another scan continues."""

    @abstractmethod
    def accept(self, got: Fetched) -> None:
        """Take over the records of a fetch from `at`."""

    @abstractmethod
    def skip_to(self, earliest: int) -> None:
        """Handle OFFSET_OUT_OF_RANGE: there is nothing before `earliest` any more."""


class _Ascending(_Part):
    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.at, self.end = start, end

    @property
    def is_wanted(self) -> bool:
        return not self.records and self.at < self.end

    @property
    def position(self) -> int:
        return self.records[0][0].offset if self.records else min(self.at, self.end)

    def accept(self, got: Fetched) -> None:
        spans = got.log_append_time
        self.records.extend((r, timestamp_type(r.offset, spans)) for r in got.records if r.offset < self.end)
        self.at = max(self.at, got.next_offset)

    def skip_to(self, earliest: int) -> None:
        # If the log does not begin later, it ends earlier than it did.
        self.at = earliest if earliest > self.at else self.end


class _Descending(_Part):
    """Reads the window of offsets from `low` to before `high`; `position` is `high` until it is complete."""

    def __init__(self, start: int, end: int, most_bytes: int) -> None:
        super().__init__()
        self.start, self.high = start, end
        self.most_bytes = most_bytes
        self.window = _FIRST_WINDOW
        self._begin()

    def _begin(self) -> None:
        self.low = self.at = max(self.start, self.high - self.window)
        self.found: list[tuple[Record, TimestampType]] = []
        self.found_bytes = 0

    @property
    def is_wanted(self) -> bool:
        return not self.records and self.high > self.start

    @property
    def position(self) -> int:
        return self.records[0][0].offset + 1 if self.records else max(self.high, self.start)

    def accept(self, got: Fetched) -> None:
        for record in got.records:
            if record.offset < self.high:
                self.found.append((record, timestamp_type(record.offset, got.log_append_time)))
                self.found_bytes += len(record.key or b"") + len(record.value or b"")
        self.at = max(self.at, got.next_offset)
        is_full = len(self.found) > _WINDOW_RECORDS or self.found_bytes > self.most_bytes
        if is_full and len(self.found) > 1 and self.high - self.low > 1:
            self.window = max(1, (self.high - self.low) // 4)
            self._begin()
        elif self.at >= self.high:
            self.records.extend(reversed(self.found))
            self.high = self.low
            if len(self.found) * 2 <= _WINDOW_RECORDS and self.found_bytes * 2 <= self.most_bytes:
                self.window *= 2
            self._begin()

    def skip_to(self, earliest: int) -> None:
        # If the log does not begin later, it ends earlier than it did.
        is_cut = earliest > self.at
        self.start = max(self.start, earliest)
        self.high = max(self.high if is_cut else self.low, self.start)
        self._begin()
