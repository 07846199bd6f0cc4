"""A partition's log as a coordinator's journal: batches of records in, durable offsets out.

What waits for the disk anyway is written when the disk is asked: a few records at a time are kept until the
next sync, and all that came since the last one are one batch then. So ten thousand heartbeats that each say
one thing are some hundred writes. Nobody can tell but by the batches: a reply waits for the sync either way,
and of a batch the log has all or nothing, as of each outcome in it.

What is large is written at once, for it must be known at once whether it fits; and so is everything where
the page cache counts as durable, for there nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from konvene.codec.batches import HEADER_SIZE, BatchHeader
from konvene.errors import Errors
from konvene.log.errors import MessageTooLarge, Refused
from konvene.log.partition import Appended
from konvene.runtime.ports import AppendRefused, Pair, RecordTooLarge
from konvene.shard.contract import Ending, Producer

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.storage.partitions import Partition

SMALL_BYTES = 4096
"""An outcome of at most so many bytes may be kept."""

TOGETHER_BYTES = 64 * 1024
"""What is kept is written before it is more than this."""

AROUND = 32
"""A record's lengths, its deltas and its attributes take fewer bytes than this."""


class Journal:
    """Where a coordinator's records go. Where `durable` is off, the page cache counts as durable."""

    __slots__ = ("_broker", "_durable", "_kept", "_kept_bytes", "_now_ms", "_partition")

    def __init__(self, broker: Broker, partition: Partition, *, durable: bool) -> None:
        self._broker = broker
        self._partition = partition
        self._durable = durable
        self._kept: list[Pair] = []
        self._kept_bytes = 0
        self._now_ms = 0

    def __repr__(self) -> str:
        return f"<journal of {self._partition}>"

    @property
    def kept(self) -> int:
        """How many records are not in the log yet: nobody was told of them."""
        return len(self._kept)

    @property
    def end_offset(self) -> int:
        return self._partition.end_offset + len(self._kept)

    @property
    def synced_offset(self) -> int:
        return self._partition.synced_offset if self._durable else self._partition.end_offset

    @property
    def online(self) -> bool:
        return self._partition.online

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        """One batch, or a part of one, all or nothing; the offset behind it. A producer has its own."""
        if producer is not None:
            return self._in_transaction(
                lambda: self._partition.append(pairs, now_ms, producer.producer_id, producer.epoch)
            )
        size = sum(AROUND + len(key or b"") + len(value or b"") for key, value in pairs)
        most = min(TOGETHER_BYTES, self._partition.max_message_bytes) - HEADER_SIZE
        if not self._durable or size > min(SMALL_BYTES, most) or not self._partition.online:
            self.write()
            try:
                return self._partition.append(pairs, now_ms).last_offset + 1
            except MessageTooLarge as error:
                raise RecordTooLarge(f"{len(pairs)} records for {self._partition}: {error}") from None
        if self._kept_bytes + size > most:
            self.write()
        self._kept += pairs
        self._kept_bytes += size
        self._now_ms = now_ms
        return self.end_offset

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        """The end of a producer's transaction; the offset behind it."""
        return self._in_transaction(lambda: self._partition.append_marker(ending, now_ms))

    def _in_transaction(self, append: Callable[[], Appended]) -> int:
        """Write what is a batch alone. Raises `AppendRefused` where the log does not take it."""
        self.write()
        try:
            return append().last_offset + 1
        except MessageTooLarge as error:
            raise RecordTooLarge(f"for {self._partition}: {error}") from None
        except Refused as error:
            raise AppendRefused(Errors(error.code)) from None

    def write(self) -> None:
        """What was kept is in the log from here on. Raises `LogError` or OSError, and then it is lost."""
        if self._kept:
            pairs, self._kept, self._kept_bytes = self._kept, [], 0
            self._partition.append(pairs, self._now_ms)

    async def sync(self) -> None:
        self.write()
        await self._partition.sync()

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of the log. What was kept goes: nobody was told of it."""
        self._kept, self._kept_bytes = [], 0
        return self._partition.batches()
