"""A log that is a list: batches as values, and what can go wrong with them.

Bytes are real: every record goes through its encoding, and whoever reads is given what was decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from konvene.broker.coordinator import Pair, RecordTooLarge, Speech
from konvene.codec.batches import BatchHeader
from konvene.groups.shard import GroupShard
from konvene.records.commits import decode_group_record, encode_group_record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Ending, Producer
from konvene.sim.agenda import Pause


class Batch(NamedTuple):
    """A batch of the log: its bytes, and what they say when they are read."""

    pairs: tuple[tuple[bytes, bytes | None], ...]
    records: tuple[Any, ...]
    timestamp_ms: int = 0
    size: int = 0
    """How many records it had when it was written."""


class Log:
    """The log of a partition. `durable` of its batches survive whatever happens."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.durable = 0
        self.epoch = 0
        """Of its leader: who has another one cannot write."""

    def __repr__(self) -> str:
        return f"<log: {len(self.batches)} batches, {self.durable} durable, epoch {self.epoch}>"

    def lose_tail(self, keep: int) -> int:
        """Lose what was not durable but for `keep` batches; how many are gone. The rest is durable."""
        end = min(self.durable + keep, len(self.batches))
        gone = len(self.batches) - end
        del self.batches[end:]
        self.durable = end
        return gone


def batch_of(pairs: Iterable[tuple[bytes, bytes | None]], timestamp_ms: int = 0) -> Batch:
    """A batch of these bytes."""
    kept = tuple(pairs)
    return Batch(kept, tuple(decode_group_record(key, value) for key, value in kept), timestamp_ms, len(kept))


def replayed(batches: Iterable[Batch]) -> GroupShard:
    """A shard made from batches."""
    shard = GroupShard()
    for batch in batches:
        for record in batch.records:
            shard.replay(record)
    return shard


class Journal:
    """The log as a coordinator sees it, and what goes wrong with it."""

    def __init__(self, log: Log, at_once: bool) -> None:
        self.log = log
        self.epoch = log.epoch
        self.at_once = at_once
        self.refuse: str | None = None
        """What happens to the next append: "fails" or "too large"."""
        self.sync_pause: Pause | None = None
        self.sync_end = 0
        """What the sync under way is of: what is appended meanwhile is for the next one."""
        self.appended: Batch | None = None
        self.failed: str | None = None

    @property
    def end_offset(self) -> int:
        return len(self.log.batches)

    @property
    def synced_offset(self) -> int:
        return self.log.durable

    @property
    def online(self) -> bool:
        return self.epoch == self.log.epoch

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        batch = batch_of(cast("list[tuple[bytes, bytes | None]]", pairs), now_ms)
        if producer is not None:
            inside = tuple(InTransaction(producer.producer_id, record) for record in batch.records)
            batch = batch._replace(records=inside)
        return self._append(batch)

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        ended = TransactionEnded(ending.producer_id, ending.committed)
        return self._append(Batch((), (ended,), now_ms, 1))

    def _append(self, batch: Batch) -> int:
        refuse, self.refuse = self.refuse, None
        if refuse == "too large":
            self.failed = refuse
            raise RecordTooLarge("the batch does not fit")
        if refuse == "fails" or not self.online:
            self.failed = "append failed"
            raise OSError("the append failed")
        self.appended = batch
        self.log.batches.append(batch)
        if self.at_once:
            self.log.durable = len(self.log.batches)
        return len(self.log.batches)

    async def sync(self) -> None:
        self.sync_end = len(self.log.batches)
        self.sync_pause = Pause()
        await self.sync_pause

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for batch in self.log.batches:
            yield cast("BatchHeader", _Header(len(batch.records))), cast("memoryview", batch)


class _Header(NamedTuple):
    record_count: int


def _read(batch: Any, header: BatchHeader) -> Iterator[tuple[int, int, Any]]:
    for record in batch.records:
        yield 0, 0, record


SPEECH = Speech(encode_group_record, _read)
