"""The journal of a coordinator: appends records to the log of its partition and reports durable offsets.

Small outcomes are buffered until the next sync and then written as one batch, so that ten thousand heartbeats
that change one record each cause some hundred writes. Replies wait for the sync either way, and a batch is
atomic just as each outcome in it, so buffering shows only in the boundaries of the batches.

A large outcome is written at once, because the coordinator must know at once whether it fits. So is every
outcome where the page cache counts as durable, because no reply waits there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from konvene.codec.batches import HEADER_SIZE, BatchHeader
from konvene.errors import Errors
from konvene.log.errors import MessageTooLarge, Refused
from konvene.log.partition import Appended
from konvene.runtime.ports import AppendRefused, Pair, RecordTooLarge
from konvene.shard.contract import Ending, Producer

MAX_BUFFERED_OUTCOME_BYTES = 4096
"""Outcomes up to this size are buffered."""

MAX_BUFFER_BYTES = 64 * 1024
"""The buffer is written before it grows beyond this size."""

RECORD_OVERHEAD_BYTES = 32
"""Upper bound of the lengths, deltas and attributes of a record."""


class JournalPartition(Protocol):
    """The partition that a journal appends to, as far as the journal uses it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def synced_offset(self) -> int: ...

    @property
    def online(self) -> bool: ...

    @property
    def max_message_bytes(self) -> int: ...

    def append(
        self, pairs: list[Pair], now_ms: int, producer_id: int = ..., producer_epoch: int = ...
    ) -> Appended: ...

    def append_marker(self, ending: Ending, now_ms: int) -> Appended: ...

    async def sync(self) -> None: ...

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]: ...


class Journal:
    """The log of a coordinator's partition, with a buffer for small outcomes.

    Unless `durable`, what the operating system has in its page cache counts as durable."""

    __slots__ = ("_buffer", "_buffer_bytes", "_durable", "_now_ms", "_partition")

    def __init__(self, partition: JournalPartition, *, durable: bool) -> None:
        self._partition = partition
        self._durable = durable
        self._buffer: list[Pair] = []
        self._buffer_bytes = 0
        self._now_ms = 0

    def __repr__(self) -> str:
        return f"<journal of {self._partition}>"

    @property
    def buffered(self) -> int:
        """Return the number of records that are not in the log yet.

        Replies that depend on them are held back."""
        return len(self._buffer)

    @property
    def end_offset(self) -> int:
        return self._partition.end_offset + len(self._buffer)

    @property
    def synced_offset(self) -> int:
        return self._partition.synced_offset if self._durable else self._partition.end_offset

    @property
    def online(self) -> bool:
        return self._partition.online

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        """Append the records of an outcome atomically; return the offset after them.

        Small outcomes share a batch; records of a producer's transaction are a batch of their own."""
        if producer is not None:
            return self._in_transaction(
                lambda: self._partition.append(pairs, now_ms, producer.producer_id, producer.epoch)
            )
        size = sum(RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") for key, value in pairs)
        limit = min(MAX_BUFFER_BYTES, self._partition.max_message_bytes) - HEADER_SIZE
        if not self._durable or size > min(MAX_BUFFERED_OUTCOME_BYTES, limit) or not self._partition.online:
            self.write()
            try:
                return self._partition.append(pairs, now_ms).last_offset + 1
            except MessageTooLarge as error:
                raise RecordTooLarge(f"{len(pairs)} records for {self._partition}: {error}") from None
        if self._buffer_bytes + size > limit:
            self.write()
        self._buffer += pairs
        self._buffer_bytes += size
        self._now_ms = now_ms
        return self.end_offset

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        """Append the marker that ends a producer's transaction; return the offset after it."""
        return self._in_transaction(lambda: self._partition.append_marker(ending, now_ms))

    def _in_transaction(self, append: Callable[[], Appended]) -> int:
        """Call `append` after writing the buffer, and return the offset after its batch.

        Raises `AppendRefused` if the log rejects the batch."""
        self.write()
        try:
            return append().last_offset + 1
        except MessageTooLarge as error:
            raise RecordTooLarge(f"for {self._partition}: {error}") from None
        except Refused as error:
            raise AppendRefused(Errors(error.code)) from None

    def write(self) -> None:
        """Append the buffered records to the log.

        If the log raises `LogError` or OSError, these records are lost."""
        if self._buffer:
            pairs, self._buffer, self._buffer_bytes = self._buffer, [], 0
            self._partition.append(pairs, self._now_ms)

    async def sync(self) -> None:
        self.write()
        await self._partition.sync()

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Return an iterator over all batches of the log, after discarding the buffer.

        No reply that was sent depended on the buffered records."""
        self._buffer, self._buffer_bytes = [], 0
        return self._partition.batches()
