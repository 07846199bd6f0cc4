"""What a broker wrote to `__consumer_offsets` about the groups of a conversation, to `__transaction_state`
about its transactions and to `__share_group_state` about its share partitions: a line for each batch.

Records of one kind that follow one another in a batch are sorted, as Kafka writes members in the order of its
hash maps; the order of the kinds is compared. Times are left out, and hashes of topics are numbered: the ids
of topics are random.
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
"""The words by which the transactions' log and that of share states are asked for."""

MOST_BYTES = 50_000_000
SHARE_PARTITIONS = 15
"""The kind of record that says which partitions of a share group have a state."""

AHEAD = 12
"""Offset and length stand in front of a batch."""

LAST_DELTA = slice(23, 27)
"""Where a batch says how far its last offset is from its first."""


class Log:
    """Reads on from where it has read to."""

    topic = INTERNAL

    def __init__(self, tag: str, reader: Reader) -> None:
        self.tag = tag
        self.reader = reader
        self.offset = self.began = 0

    def read(
        self, ask: Callable[[FetchRequest, int], Any], least: int = 0, within_s: float = 0.0
    ) -> list[str]:
        """The batches that are new, each as a line; so many at `least`, if they come within a time."""
        lines: list[str] = []
        deadline = time.monotonic() + within_s
        while True:
            while data := bytes(self._fetch(ask, MOST_BYTES).records or b""):
                for batch in whole(data):
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
            whose = f"{self.reader.producer(header.producer_id)}/{header.producer_epoch}"
            return [f"{line} in {whose}" for line in entry]
        return entry

    def begin(self, ask: Callable[[FetchRequest, int], Any]) -> None:
        """Pass over what is there already."""
        self.offset = self.began = self._fetch(ask, 1).high_watermark

    def initializing(self, ask: Callable[[FetchRequest, int], Any]) -> bool:
        """Whether share groups of the conversation wait for states of partitions."""
        last: dict[str, Any] = {}
        data = bytes(self._fetch(ask, MOST_BYTES, self.began).records or b"")
        for batch in whole(data):
            if self.tag.encode() not in batch or batches.read_header(batch).is_control:
                continue
            for entry in batches.records(batch):
                if entry.key is not None and int.from_bytes(entry.key[:2], "big") == SHARE_PARTITIONS:
                    record: Any = decode_record(entry.key, entry.value, GROUP_RECORDS)
                    last[record.key.group_id] = record.value
        mine = (value for group, value in last.items() if group.startswith(self.tag))
        return any(value is not None and value.initializing_topics for value in mine)

    def _fetch(self, ask: Callable[[FetchRequest, int], Any], most: int, offset: int | None = None) -> Any:
        at = self.offset if offset is None else offset
        requested = FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=most)
        topic = FetchTopic(topic=self.topic, partitions=(requested,))
        answer = ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=most, topics=(topic,)), 12)
        return answer.responses[0].partitions[0]

    def _render(self, records: list[batches.Record]) -> list[str]:
        entry = [t for r in records if (t := self._record(r.key or b"", r.value))]
        if not entry:
            return []
        runs = (sorted(run, key=self.reader.rank) for _, run in groupby(entry, key=lambda t: t.split()[0]))
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
    """The same of the log of transactions."""

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
    """The same of the log of share states. States of several partitions are written in one batch or in
    several: a line is a record, and those of one partition stay in their order."""

    topic = SHARE_STATE

    def read(
        self, ask: Callable[[FetchRequest, int], Any], least: int = 0, within_s: float = 0.0
    ) -> list[str]:
        return sorted(super().read(ask, least, within_s), key=_whose)

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


def _whose(line: str) -> list[str]:
    """Group, topic and partition of a record's line."""
    return line.split()[3:6]


def whole(data: bytes) -> Iterator[bytes]:
    """The batches of a fetch; the last one may be cut."""
    at = 0
    while at + AHEAD <= len(data):
        end = at + AHEAD + int.from_bytes(data[at + 8 : at + AHEAD], "big")
        if end > len(data):
            return
        yield data[at:end]
        at = end
