"""A partition's log as a coordinator's journal: batches of records in, durable offsets out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from konvene.broker.coordinator import Pair, RecordTooLarge
from konvene.codec.batches import BatchHeader
from konvene.log.errors import MessageTooLarge

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.partitions import Partition


class Journal:
    """Where a coordinator's records go. Where `durable` is off, the page cache counts as durable."""

    __slots__ = ("_broker", "_durable", "_partition")

    def __init__(self, broker: Broker, partition: Partition, *, durable: bool) -> None:
        self._broker = broker
        self._partition = partition
        self._durable = durable

    def __repr__(self) -> str:
        return f"<journal of {self._partition}>"

    @property
    def end_offset(self) -> int:
        return self._partition.end_offset

    @property
    def synced_offset(self) -> int:
        return self._partition.synced_offset if self._durable else self._partition.end_offset

    @property
    def online(self) -> bool:
        return self._partition.online

    def append_pairs(self, pairs: list[Pair], now_ms: int) -> int:
        """One batch, all or nothing; the offset behind it."""
        try:
            return self._partition.append(pairs, now_ms).last_offset + 1
        except MessageTooLarge as error:
            raise RecordTooLarge(f"{len(pairs)} records for {self._partition}: {error}") from None

    async def sync(self) -> None:
        await self._partition.sync()

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of the log."""
        return self._partition.batches()
