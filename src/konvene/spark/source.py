"""Spark data source `konvene`: users' topics as batch and streaming data frames.

    spark.read.format("konvene").option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders").load()

Options and columns are those of Spark's Kafka connector (`options.OPTIONS`). With an explicit schema
(`.schema("key binary, value binary")`) the other columns are not decoded.

A stream's offsets are `{"orders":{"0":23}}`. Spark keeps its reader in one process on the driver for the life
of the query, and another one that only plans; tasks run in workers. Readers are values that travel to them:
each process opens a connection of its own.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.pipeline.sources.types import conversion, spark_schema
from konvene.spark.connections import Connection, connection
from konvene.spark.options import SourceOptions, has_headers, source_options
from konvene.spark.positions import Offsets, as_json, from_json
from konvene.spark.ranges import OffsetRange, divided, is_too_early, limited, ranges
from konvene.spark.rows import HEADER_COLUMN, SCHEMA, DataLoss, ReadTask, read
from konvene.spark.topics import earliest, ends, latest, partitions, starts

__all__ = ["Konvene"]

IDLE_S = 0.05
"""Time between two looks for new records; Spark itself would ask every 10 ms."""
Json = Mapping[str, Mapping[str, int]]
"""Offsets as Spark keeps them."""
LOOKS = 4
"""Number of looks before a trigger without new records returns."""
_log = logging.getLogger(__name__)


class Konvene(DataSource):
    """Spark data source; see the module docstring."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "konvene"

    def schema(self) -> StructType:
        return spark_schema(SCHEMA.append(HEADER_COLUMN) if has_headers(self._given) else SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(source_options(self._given, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(source_options(self._given, streaming=True), schema)


class BatchReader(DataSourceReader):
    """Reader of a batch query: the offsets that exist when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        there = connection(self._options.servers, self._options.client)
        return _tasks(self._options, there.run(self._plan(there.cluster)))

    async def _plan(self, cluster: Cluster) -> list[OffsetRange]:
        options = self._options
        wanted = await partitions(cluster, options.subscription)
        if not wanted:
            return []
        start = await starts(cluster, options, wanted)
        return ranges(start, await ends(cluster, options, wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a streaming query; its progress is kept only in Spark's checkpoint."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Offsets | None = None
        self._known: Offsets = {}
        self._last_batch_s = 0.0

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return as_json(self._connection.run(self._starts()))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Json, limit: ReadLimit) -> dict[str, dict[str, int]]:
        begun = from_json(start)
        for _ in range(LOOKS):
            end = self._connection.run(self._reachable(begun, limit))
            if end != begun or self._target is not None:
                break
            time.sleep(IDLE_S)
        if end != begun:
            self._last_batch_s = time.monotonic()
        return as_json(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return as_json(self._known)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._connection.run(self._ends())

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        begun, until = from_json(start), from_json(end)
        begun |= self._connection.run(self._new_starts(begun, until))
        return _tasks(self._options, ranges(begun, until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._schema)

    # ------------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> Connection:
        return connection(self._options.servers, self._options.client)

    async def _starts(self) -> dict[TopicPartition, int]:
        cluster = self._connection.cluster
        wanted = await partitions(cluster, self._options.subscription)
        return await starts(cluster, self._options, wanted) if wanted else {}

    async def _ends(self) -> dict[TopicPartition, int]:
        cluster = self._connection.cluster
        wanted = await partitions(cluster, self._options.subscription)
        return await latest(cluster, wanted, self._options.isolation_level) if wanted else {}

    async def _new_starts(self, begun: Offsets, until: Offsets) -> dict[TopicPartition, int]:
        """Return the starts of partitions that were found after the query began, or were created again."""
        fresh = [tp for tp, end in until.items() if end < begun.get(tp, sys.maxsize)]
        return await earliest(self._connection.cluster, fresh) if fresh else {}

    async def _reachable(self, begun: Offsets, limit: ReadLimit) -> dict[TopicPartition, int]:
        """Return the end of the next micro-batch."""
        self._known = await self._ends() if self._target is None else self._target
        self._check_loss(begun, self._known)
        target = {**begun, **self._known}
        since = {**begun, **await self._new_starts(begun, self._known)}
        options = self._options
        if options.min_offsets is not None and self._target is None:
            available = sum(each.size for each in ranges(since, target))
            waited_ms = round((time.monotonic() - self._last_batch_s) * 1_000)
            if is_too_early(available, options.min_offsets, waited_ms, options.max_trigger_delay_ms):
                return dict(begun)
        if isinstance(limit, ReadMaxRows):
            target = limited(since, target, limit.max_rows)
        return target

    def _check_loss(self, begun: Offsets, target: Offsets) -> None:
        """Raise `DataLoss`, or warn, if partitions no longer exist or have fewer offsets than were read."""
        missing = sorted(tp for tp in begun if tp not in target)
        back = sorted(tp for tp, offset in target.items() if offset < begun.get(tp, 0))
        if not missing and not back:
            return
        what = [f"{tp} does not exist any more" for tp in missing]
        what += [f"{tp} ends at offset {target[tp]}, and was read up to {begun[tp]}" for tp in back]
        if self._options.fails_on_loss:
            raise DataLoss("; ".join(what))
        _log.warning("%s", "; ".join(what))


def _tasks(options: SourceOptions, found: list[OffsetRange]) -> list[InputPartition]:
    return [
        InputPartition(
            ReadTask(
                each, options.servers, options.client, options.isolation_level, options.fetch_bytes,
                options.fails_on_loss,
            )
        )
        for each in divided(found, options.min_partitions, options.max_records)
    ]  # fmt: skip


def _read(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    task: ReadTask | None = partition.value
    rows = (
        () if task is None else read(task, schema.names)
    )  # Spark plans a task of its own if there are none.
    return map(conversion(schema), rows)
