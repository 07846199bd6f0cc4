"""Read the internal topics and render the records of a conversation, one line for each batch.

The topics are `__consumer_offsets` (groups), `__transaction_state` (transactions) and `__share_group_state`
(share partitions). Consecutive records of one type in a batch are sorted, because Kafka writes members in
hash-map order; the order of the types is compared. Timestamps are omitted, and metadata hashes are numbered
because topic ids are random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from tests.differential.answers import Reader

from konvene.codec import batches
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.records.coordinator import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    decode_record,
    value_version,
)

INTERNAL = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARE_STATE = "__share_group_state"
STATE, SHARES = "state", "shares"
"""Arguments of `written` that select the transaction log or the share state log."""

MOST_BYTES = 50_000_000
SHARE_PARTITIONS = 15
"""Record type of `ShareGroupStatePartitionMetadata`: the partitions with an initialized state."""

HEADER_BYTES = 12
"""Bytes of the base offset and the length at the start of a batch."""

LAST_DELTA = slice(23, 27)
"""Position of the last offset delta in a batch."""


class Log:
    """Reads the new records of `__consumer_offsets` at each call."""

    topic = INTERNAL

    def __init__(self, tag: str, reader: Reader) -> None:
        self.tag = tag
        self.reader = reader
        self.offset = self.began = 0

    def read(
        self, ask: Callable[[FetchRequest, int], Any], least: int = 0, within_s: float = 0.0
    ) -> list[str]:
        """Return new batches, a line each; wait up to `within_s` for at `least` so many lines."""
        lines: list[str] = []
        deadline = time.monotonic() + within_s
        while True:
            while data := bytes(self._fetch(ask, MOST_BYTES).records or b""):
                for batch in complete_batches(data):
                    lines += self._batch(batch)
                    last = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[LAST_DELTA], "big")
                    self.offset = last + 1
            if len(lines) >= least or time.monotonic() >= deadline:
                return lines
            time.sleep(0.02)

    def _batch(self, batch: bytes) -> list[str]:
        header = batches.read_header(batch)
        if header.is_control and header.producer_id in self.reader.producers:
            return [f"log <- {self.reader.batch(batch).partition(' ')[2]}"]
        if header.is_control or self.tag.encode() not in batch:
            return []
        entry = self._render(batches.records(batch))
        if header.is_transactional:
            producer = f"{self.reader.producer(header.producer_id)}/{header.producer_epoch}"
            return [f"{line} in {producer}" for line in entry]
        return entry

    def begin(self, ask: Callable[[FetchRequest, int], Any]) -> None:
        """Skip the records that already exist."""
        self.offset = self.began = self._fetch(ask, 1).high_watermark

    def initializing(self, ask: Callable[[FetchRequest, int], Any]) -> bool:
        """Return True while a share group of the conversation has partitions to initialize."""
        last: dict[str, Any] = {}
        data = bytes(self._fetch(ask, MOST_BYTES, self.began).records or b"")
        for batch in complete_batches(data):
            if self.tag.encode() not in batch or batches.read_header(batch).is_control:
                continue
            for entry in batches.records(batch):
                if entry.key is not None and int.from_bytes(entry.key[:2], "big") == SHARE_PARTITIONS:
                    record: Any = decode_record(entry.key, entry.value, GROUP_RECORDS)
                    last[record.key.group_id] = record.value
        mine = (value for group, value in last.items() if group.startswith(self.tag))
        return any(value is not None and value.initializing_topics for value in mine)

    def _fetch(self, ask: Callable[[FetchRequest, int], Any], most: int, offset: int | None = None) -> Any:
        position = self.offset if offset is None else offset
        requested = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=most)
        topic = FetchTopic(topic=self.topic, partitions=(requested,))
        answer = ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=most, topics=(topic,)), 12)
        return answer.responses[0].partitions[0]

    def _render(self, records: list[batches.Record]) -> list[str]:
        entry = [t for r in records if (t := self._record(r.key or b"", r.value))]
        if not entry:
            return []
        runs = (
            sorted(run, key=self.reader.sort_key) for _, run in groupby(entry, key=lambda t: t.split()[0])
        )
        return ["log <- " + self.reader.named("; ".join(record for run in runs for record in run))]

    def _record(self, key: bytes, value: bytes | None) -> str:
        kind = GROUP_RECORDS[int.from_bytes(key[:2], "big")]
        record: Any = decode_record(key, value, GROUP_RECORDS)
        group = record.key.group_id if hasattr(record.key, "group_id") else record.key.group
        if not group.startswith(self.tag):
            return ""
        entry = f"{kind.name} {self.reader.struct(record.key, 0)[1:-1]}"
        if record.value is None or value is None:
            return f"{entry} tombstone"
        version = value_version(kind, value)
        return f"{entry} v{version} {self.reader.struct(record.value, version)}"


class TransactionLog(Log):
    """Reads the new records of `__transaction_state`."""

    topic = TRANSACTIONS

    def _record(self, key: bytes, value: bytes | None) -> str:
        record: Any = decode_record(key, value, TRANSACTION_RECORDS)
        if not record.key.transactional_id.startswith(self.tag):
            return ""
        entry = f"transaction {self.reader.struct(record.key, 0)[1:-1]}"
        if record.value is None or value is None:
            return f"{entry} tombstone"
        version = int.from_bytes(value[:2], "big")
        return f"{entry} v{version} {self.reader.struct(record.value, version)}"


class ShareLog(Log):
    """Reads the new records of `__share_group_state`, one line for each record.

    A broker may write the states of several partitions in one batch or in several, so lines are sorted by
    partition; records of one partition keep their order.
    """

    topic = SHARE_STATE

    def read(
        self, ask: Callable[[FetchRequest, int], Any], least: int = 0, within_s: float = 0.0
    ) -> list[str]:
        return sorted(super().read(ask, least, within_s), key=_share_partition)

    def _render(self, records: list[batches.Record]) -> list[str]:
        entry = [t for r in records if (t := self._record(r.key or b"", r.value))]
        return [f"log <- {self.reader.named(record)}" for record in entry]

    def _record(self, key: bytes, value: bytes | None) -> str:
        kind = SHARE_STATE_RECORDS[int.from_bytes(key[:2], "big")]
        record: Any = decode_record(key, value, SHARE_STATE_RECORDS)
        if not record.key.group_id.startswith(self.tag):
            return ""
        entry = f"{kind.name} {self.reader.struct(record.key, 0)[1:-1]}"
        if record.value is None or value is None:
            return f"{entry} tombstone"
        return f"{entry} v0 {self.reader.struct(record.value, 0)}"


def _share_partition(line: str) -> list[str]:
    """Return the group, topic and partition of a rendered record."""
    return line.split()[3:6]


def complete_batches(data: bytes) -> Iterator[bytes]:
    """Yield the complete batches of a fetch; the last one may be truncated."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        end = position + HEADER_BYTES + int.from_bytes(data[position + 8 : position + HEADER_BYTES], "big")
        if end > len(data):
            return
        yield data[position:end]
        position = end
