"""Reads a range of offsets into Arrow batches: what a task does, without Spark.

The columns are those of Spark's Kafka connector. Records are decoded column by column.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from konvene.client.errors import CorruptRecord, KafkaError
from konvene.client.net.cluster import Cluster
from konvene.errors import Errors
from konvene.pipeline.codec.bronze import Decoded, LogRecords, blocks
from konvene.pipeline.codec.user_records import user_records, without_control
from konvene.pipeline.sources.client_config import ClientConfig
from konvene.pipeline.sources.live import read_range
from konvene.pipeline.tables.record import HEADERS
from konvene.spark.connections import connection
from konvene.spark.ranges import OffsetRange
from konvene.spark.topics import earliest, latest

__all__ = ["HEADER_COLUMN", "SCHEMA", "DataLoss", "ReadTask", "read"]

SCHEMA = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
    ]
)  # fmt: skip
HEADER_COLUMN = pa.field("headers", HEADERS)
_OF_RECORDS = {"timestamp": "timestamp_ms", "timestampType": "timestamp_type"}
"""Columns of the table `record` by the columns here that have other names."""
_log = logging.getLogger(__name__)


class DataLoss(ValueError):
    """Records that a query should read do not exist any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Some data may have been missed, because it was deleted by retention or with its topic; "
            "failOnDataLoss=false reads what is left"
        )


class ReadTask(NamedTuple):
    """A range of offsets to read, as one task."""

    range: OffsetRange
    servers: str
    client: ClientConfig
    isolation_level: int
    fetch_bytes: int
    fails_on_loss: bool


def read(task: ReadTask, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, some ten thousand at a time, with these columns.

    Raises `DataLoss` if the log does not have the range's offsets any more."""
    left = task.range
    there = connection(task.servers, task.client)
    while left.size:
        try:
            for answer in there.each(
                read_range(
                    there.cluster, left.partition, left.start, left.end,
                    isolation_level=task.isolation_level, fetch_bytes=task.fetch_bytes,
                )
            ):  # fmt: skip
                for found in blocks(b"".join(batch for _, batch in answer)):
                    yield from _rows(found, left, names)
                left = left._replace(start=max(left.start, answer[-1][0].next_offset))
            return
        except KafkaError as error:
            if error.code != Errors.OFFSET_OUT_OF_RANGE:
                raise
        if task.fails_on_loss:
            raise DataLoss(f"{left} are not in the log any more")
        remaining = there.run(_remaining(there.cluster, left, task.isolation_level))
        _log.warning("%s are not in the log any more; reading goes on with %s", left, remaining)
        left = remaining


async def _remaining(cluster: Cluster, left: OffsetRange, isolation_level: int) -> OffsetRange:
    """Return the part of a range that the log still has."""
    first = (await earliest(cluster, [left.partition]))[left.partition]
    last = (await latest(cluster, [left.partition], isolation_level))[left.partition]
    start = max(left.start, first)
    return left._replace(start=start, end=max(start, min(left.end, last)))


def _rows(found: Decoded, within: OffsetRange, names: list[str]) -> Iterator[pa.RecordBatch]:
    if found.quarantine is not None:
        bad = found.quarantine.to_pylist()[0]
        raise CorruptRecord(f"reading {within.partition} at offset {bad['offset']}: {bad['reason']}")
    tp = within.partition
    records = without_control(found.rows("", tp.topic, tp.partition)).within(within.start, within.end - 1)
    if len(records):
        yield _batch(records, names)


def _batch(records: LogRecords, names: list[str]) -> pa.RecordBatch:
    rows = user_records(records, [_OF_RECORDS.get(name, name) for name in names])
    columns = [_CONVERT.get(name, _as_is)(column) for name, column in zip(names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _as_is(column: pa.Array) -> pa.Array:
    return column


def _timestamps(ms: pa.Array) -> pa.Array:
    return pa.array(ms.to_numpy() * 1_000).cast(SCHEMA.field("timestamp").type)


def _timestamp_types(names: pa.Array) -> pa.Array:
    """Return Kafka's ids of timestamp types."""
    return pc.equal(names, "LogAppendTime").cast(pa.int32())


def _headers(lists: pa.Array) -> pa.Array:
    """Return null for records without headers, as Spark's connector does."""
    none = pc.equal(pc.list_value_length(lists), 0)
    return pc.if_else(none, pa.scalar(None, lists.type), lists)


_CONVERT: dict[str, Callable[[pa.Array], pa.Array]] = {
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
