"""Decodes a part of a log into rows of one table: the task of the data source, without Spark.

The decoders are those of an ingest, so the rows are the same. Only tables that follow from one part of one
log are here; `ingest` and `build` make the others (spans, gold, validity of rows).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.internal_topics import AUDIT_TOPIC, COORDINATOR_TOPICS
from konvene.pipeline.codec.bronze import Decoded, LogRecords, blocks, located
from konvene.pipeline.codec.ends import log_ends
from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.codec.user_records import is_transactional, user_records, without_control
from konvene.pipeline.gold.audits import audit_rows
from konvene.pipeline.ingest.splits import Split, read_bytes
from konvene.pipeline.ingest.windows import decoded
from konvene.pipeline.sources.client_config import NO_CONFIG, ClientConfig
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.sources.live import in_turn, read_range
from konvene.pipeline.sources.plan import Slice, Wanted
from konvene.pipeline.sources.transactions import outcomes
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.record import RECORD

__all__ = ["PARTS", "TABLES_OF_LOGS", "Reading", "fetched", "part_of", "reading", "table_of"]

_USERS = re.compile(r"(?!__).*")
Names = Sequence[str] | None
"""Columns that are needed; None for all."""
Rows = Callable[[Slice, Iterable[Decoded], Names], Iterator[pa.RecordBatch]]
"""A function that makes the rows of a table from the decoded batches of a part."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A table that can be read from logs: its schema, the topics that contain it, and its decoder."""

    table: str
    schema: pa.Schema
    topics: tuple[str, ...]
    """Topics whose logs contain the table; empty for tables of user topics."""
    rows: Rows
    everything: bool = False
    """True to read the files of all topics."""

    def __repr__(self) -> str:
        return f"Reading({self.table})"

    @property
    def wanted(self) -> Wanted:
        names = "|".join(map(re.escape, self.topics))
        if self.everything:
            return Wanted(re.compile(".*"), headers_only=True)
        topics = re.compile(names) if names else _USERS
        return Wanted(topics, headers_only=self.table == TABLES["log_end"].name)

    def batches(self, part: Slice, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, some ten thousand at a time; with at least the columns `names`, if they
        are given."""
        return (batch for batch in self.rows(part, _decoded(part), names) if batch.num_rows)


def reading(table: str, *, committed: bool = False) -> Reading:
    """Return how a table is read from logs; with `committed` without the records of aborted and unfinished
    transactions, which only the table `record` can leave out.

    Raises ValueError if the table cannot leave them out, KeyError for a table that does not follow from one
    log."""
    if not committed:
        return TABLES_OF_LOGS[table]
    if table != RECORD.name:
        raise ValueError(f"read_committed is an isolation level of the table {RECORD.name}, not of {table}")
    return replace(TABLES_OF_LOGS[table], rows=_committed_records)


def table_of(topic: str) -> str:
    """Return the table that has the records of a topic."""
    if topic in COORDINATOR_TOPICS:
        return "coordinator_record"
    return "audit_event" if topic == AUDIT_TOPIC else RECORD.name


def _bronze(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    for each in found:
        yield _records(part, each).batch(names)


def _quarantine(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    of_type = {kind: table for (topic, kind), table in TYPED.items() if topic == part.of.topic}
    for each in found:
        if each.quarantine is not None:
            yield located(each.quarantine, *_where(part.of))
        records = _records(part, each)
        for kind, table in sorted(of_type.items()):
            bad = table.decode(records.of_type(kind))[1]
            if bad is not None:
                yield bad


def _silver(kind: int) -> Rows:
    def rows(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
        table = TYPED[part.of.topic, kind]
        for each in found:
            yield table.decode(_records(part, each).of_type(kind), names)[0]

    return rows


def _audits(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    for each in found:
        yield from audit_rows(_records(part, each))


def _user_records(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    for each in found:
        yield user_records(without_control(_records(part, each)), names)


def _committed_records(
    part: Slice, found: Iterable[Decoded], names: Names = None
) -> Iterator[pa.RecordBatch]:
    if part.split is None:
        raise ValueError("read_committed reads files; of a live cluster records are read_uncommitted")
    of_part = outcomes(part.split)
    for each in found:
        records = without_control(_records(part, each))
        in_doubt = is_transactional(records)
        rows = records.filter(in_doubt)
        kept = ~in_doubt
        producers = rows.column("producer_id").to_numpy()
        kept[in_doubt] = of_part.committed(producers, rows.offsets)
        yield user_records(records.filter(kept), names)


def _parts(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    """Return the row of `log_part` that describes the part, without reading it."""
    split = part.split or Split("", -1, 0, 0, part.first, part.last)
    row = (
        *_where(part.of), part.first, part.last, split.path, split.segment_base, split.position, split.end,
        split.first, split.last, split.inode, part.bootstrap,
    )  # fmt: skip
    yield pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(row, PARTS, strict=True)], schema=PARTS
    )


def part_of(row: Sequence[Any], client: ClientConfig = NO_CONFIG) -> Slice:
    """Return the part of a log that a row of `log_part` describes; `client` connects to its servers."""
    cluster, topic, partition, first, last, *split, servers = row
    of = Partition(cluster, topic, partition)
    return Slice(of, first, last, None if servers else Split(*split), servers, client)


def _end_rows(part: Slice, found: Iterable[Decoded], names: Names = None) -> Iterator[pa.RecordBatch]:
    if part.split is None:
        raise ValueError("the table log_end is read from files, not from a live cluster")
    for rows in log_ends(read_bytes(part.split), position=0, end=part.split.size):
        yield located(rows, *_where(part.of))


PARTS = pa.schema(
    [
        ("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
        ("first_offset", pa.int64()), ("last_offset", pa.int64()), ("path", pa.string()),
        ("segment_base_offset", pa.int64()), ("position", pa.int64()), ("end_position", pa.int64()),
        ("segment_first_offset", pa.int64()), ("segment_last_offset", pa.int64()), ("inode", pa.int64()),
        ("servers", pa.string()),
    ]
)  # fmt: skip
"""The table `log_part`: the parts of logs to read, one row per task, without their contents."""


def _tables() -> Iterator[Reading]:
    bronze = TABLES["coordinator_record"].schema
    yield Reading("log_part", PARTS, (*COORDINATOR_TOPICS, AUDIT_TOPIC), _parts, everything=True)
    yield Reading("coordinator_record", bronze, COORDINATOR_TOPICS, _bronze)
    yield Reading("quarantine", TABLES["quarantine"].schema, COORDINATOR_TOPICS, _quarantine)
    yield Reading("audit_event", TABLES["audit_event"].schema, (AUDIT_TOPIC,), _audits)
    yield Reading("log_end", TABLES["log_end"].schema, (), _end_rows)
    yield Reading(RECORD.name, RECORD.schema, (), _user_records)
    for (topic, kind), table in TYPED.items():
        yield Reading(table.name, table.schema, (topic,), _silver(kind))


TABLES_OF_LOGS = {each.table: each for each in _tables()}
"""Tables that can be read from logs, by name."""


# bytes -------------------------------------------------------------------------------------------


def _decoded(part: Slice) -> Iterator[Decoded]:
    split = part.split
    if split is None:
        yield from fetched(part.bootstrap, part.of, part.first, part.last, part.client)
    else:
        yield from decoded(split)


def fetched(
    servers: str, of: Partition, first: int, last: int, client: ClientConfig = NO_CONFIG
) -> Iterator[Decoded]:
    """Fetch a range of offsets from a broker and yield the decoded batches; the first and last batch
    may exceed the range."""
    with asyncio.Runner() as runner:
        cluster = Cluster(servers, client.client_settings())
        try:
            tp = TopicPartition(of.topic, of.partition)
            for answer in in_turn(read_range(cluster, tp, first, last + 1), runner):
                yield from blocks(b"".join(batch for _, batch in answer))
        finally:
            runner.run(cluster.close())


def _records(part: Slice, found: Decoded) -> LogRecords:
    """Return the records within the part's offsets; its first and last batch may have others."""
    return found.rows(*_where(part.of)).within(part.first, part.last)


def _where(of: Partition) -> tuple[str, str, int]:
    return of.cluster, of.topic, of.partition
