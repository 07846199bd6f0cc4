"""Spark data source `konvene-log`: coordinators' logs as batch and streaming data frames.

    spark.read.format("konvene-log").option("table", "coordinator_record").load("/var/kafka-logs")
    spark.readStream.format("konvene-log").option("kafka.bootstrap.servers", "localhost:9092").load()

A secured cluster takes `command.config`, a properties file, and the other `kafka.` settings of clients;
secrets are accepted in the file only (`client_config`).

`table` is a bronze or silver table that follows from the log alone (`TABLES_OF_LOGS`). Tasks decode the
records, by columns; the driver plans them from file names and a few headers. With an explicit schema
(`.schema("offset bigint, key binary")`) all other columns are dropped before they reach Spark.

Options select partitions and offsets. Filters do not: Spark 4.3 caches the plan that a filter made for a
Python source and reuses it for other queries of the same frame, with wrong results.

A stream's offsets are `{"<cluster>/<topic>-<partition>": <next offset>}`. A planned batch reads the same
records each time it is repeated, unless retention or the cleaner removed them from the log meanwhile.

Spark creates readers in processes of its own, some only for a schema, and ends them without notice: so no
file is opened before it is read, and none stays open afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace

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
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from konvene.pipeline.ingest.splits import TASK_BYTES
from konvene.pipeline.sources.client_config import CONFIG_OPTION, PREFIX, client_config
from konvene.pipeline.sources.decode import Reading, reading
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.sources.limits import Limit
from konvene.pipeline.sources.plan import Files, Live, Slice, Source, Wanted
from konvene.pipeline.sources.types import conversion, spark_schema

__all__ = ["KonveneLog"]

SERVERS = f"{PREFIX}bootstrap.servers"
OPTIONS = {
    "path": "A segment, partition directory or data directory; `load` takes several.",
    SERVERS: "A live cluster, konvene's or Kafka's, instead of paths.",
    CONFIG_OPTION: "A properties file with client settings for a live cluster, on each machine or added with "
    "`addFile` [`KONVENE_COMMAND_CONFIG`].",
    "kafka.*": "Client settings that are no secrets, such as `kafka.security.protocol`; they override the "
    "file.",
    "table": "The table to read [coordinator_record].",
    "cluster": "The name of the cluster, if the files do not contain it.",
    "partitions": "Only these partitions of the logs, such as `0,7`.",
    "offsets": "Only this range of offsets, such as `1000-1999` or `1000-`.",
    "taskBytes": f"Approximate bytes of a file per task [{TASK_BYTES}].",
    "startingOffsets": "For streams: `earliest` [earliest] or `latest`.",
    "maxRecordsPerTrigger": "For streams: approximate records per micro-batch.",
    "maxBytesPerTrigger": "For streams of files: bytes per micro-batch.",
    "maxFilesPerTrigger": "For streams of files: files per micro-batch.",
}
"""The supported options. Others are rejected: a misspelt limit would otherwise be ignored."""

LIMITS: dict[str, Callable[[int], ReadLimit]] = {
    "maxRecordsPerTrigger": ReadMaxRows,
    "maxBytesPerTrigger": ReadMaxBytes,
    "maxFilesPerTrigger": ReadMaxFiles,
}
_KNOWN = {name.lower() for name in OPTIONS} | {"paths"}


class KonveneLog(DataSource):
    """Spark data source; see the module docstring."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        names = {name.lower() for name in options if not name.lower().startswith(PREFIX)}
        unknown = sorted(names - _KNOWN)
        if unknown:
            raise ValueError(f"konvene-log has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}")
        self._client = client_config(options)
        self._reading = reading(options.get("table", "coordinator_record"))

    @classmethod
    def name(cls) -> str:
        return "konvene-log"

    def schema(self) -> StructType:
        return spark_schema(self._reading.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._reading, self._wanted(), self._source(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._reading, self._wanted(), self._source(), schema, dict(self.options))

    def _wanted(self) -> Wanted:
        return chosen(self._reading.wanted, self.options)

    def _source(self) -> Source:
        options = self.options
        paths = json.loads(options["paths"]) if "paths" in options else []
        paths += [options["path"]] if "path" in options else []
        cluster = options.get("cluster", "")
        if (SERVERS in options) == bool(paths):
            raise ValueError(f"konvene-log reads paths (load) or {SERVERS}: give one of them")
        if not paths:
            return Live(options[SERVERS], cluster, self._reading.topics, self._client)
        return Files(
            tuple(re.sub(r"^file:(//)?(?=/)", "", path) for path in paths),
            cluster,
            int(options.get("taskBytes", TASK_BYTES)),
        )


class Part(InputPartition):
    """The part of a log that one task of Spark reads."""

    def __init__(self, part: Slice) -> None:
        super().__init__(part)


class BatchReader(DataSourceReader):
    """Reader of a batch query: the offsets that exist when the query is planned."""

    def __init__(self, what: Reading, wanted: Wanted, source: Source, schema: StructType) -> None:
        self._reading = what
        self._wanted = wanted
        self._source = source
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        places = self._source.places(self._wanted)
        start = {of: place.first for of, place in places.items()}
        end = {of: place.next for of, place in places.items()}
        return [Part(each) for each in self._source.slices(self._wanted, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._reading, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a streaming query; its progress is kept only in Spark's checkpoint."""

    def __init__(
        self, what: Reading, wanted: Wanted, source: Source, schema: StructType, options: Mapping[str, str]
    ) -> None:
        self._reading = what
        self._wanted = wanted
        self._source = source
        self._schema = schema
        self._target: dict[Partition, int] | None = None
        self._known: dict[Partition, int] = {}
        given = {name: options[name] for name in options if name.lower() in map(str.lower, LIMITS)}
        lowered = {name.lower(): made for name, made in LIMITS.items()}
        self._limits = [lowered[name.lower()](int(value)) for name, value in given.items()]
        self._from_latest = options.get("startingoffsets", options.get("startingOffsets", "earliest"))
        if len(self._limits) > 1:
            raise ValueError(f"give one of {', '.join(LIMITS)}")
        if isinstance(source, Live) and any(not isinstance(each, ReadMaxRows) for each in self._limits):
            raise ValueError("of a live cluster a stream can be limited by maxRecordsPerTrigger only")
        if self._from_latest not in ("earliest", "latest"):
            raise ValueError("startingOffsets is earliest or latest")

    def initialOffset(self) -> dict[str, int]:
        if self._from_latest == "latest":
            return _json(self._ends())
        if isinstance(self._source, Files):  # Deleted segments are not listed.
            return {}
        return _json({of: at.first for of, at in self._source.places(self._wanted).items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._limits[0] if self._limits else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begun = _offsets(start)
        target = self._ends() if self._target is None else self._target
        merged = begun | {of: max(end, begun.get(of, 0)) for of, end in target.items()}
        if isinstance(limit, ReadAllAvailable):
            return _json(merged)
        return _json(self._source.limited(self._wanted, begun, merged, _limit(limit)))

    def reportLatestOffset(self) -> dict[str, int]:
        return _json(self._known)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        parts = self._source.slices(self._wanted, _offsets(start), _offsets(end))
        return [Part(each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._reading, self._schema, partition)

    def _ends(self) -> dict[Partition, int]:
        self._known = {of: at.next for of, at in self._source.places(self._wanted).items()}
        return self._known


def _rows(what: Reading, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. If nothing is planned, Spark still runs one task, without rows."""
    part: Slice | None = partition.value
    return iter(()) if part is None else map(conversion(schema), what.batches(part, schema.names))


def chosen(wanted: Wanted, options: Mapping[str, str]) -> Wanted:
    """Restrict `wanted` to the partitions and offsets in the options. Raises ValueError for invalid ones."""
    numbers = options.get("partitions", "").replace(" ", "")
    if numbers:
        if re.fullmatch(r"\d+(,\d+)*", numbers) is None:
            raise ValueError("partitions are numbers, such as 0,7")
        wanted = replace(wanted, partitions=frozenset(map(int, numbers.split(","))))
    between = options.get("offsets", "").replace(" ", "")
    if between:
        match = re.fullmatch(r"(\d+)-(\d*)", between)
        if match is None:
            raise ValueError("offsets are the first and the last, such as 1000-1999, or 1000- for all behind")
        last = int(match[2]) if match[2] else wanted.largest_offset
        wanted = replace(wanted, least_offset=int(match[1]), largest_offset=last)
    return wanted


def _limit(limit: ReadLimit) -> Limit:
    if isinstance(limit, ReadMaxRows):
        return Limit(records=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return Limit(bytes=limit.max_bytes)
    if isinstance(limit, ReadMaxFiles):
        return Limit(files=limit.max_files)
    raise ValueError(f"konvene-log knows no limit of the kind {limit}")


def _json(offsets: Mapping[Partition, int]) -> dict[str, int]:
    return {str(of): at for of, at in sorted(offsets.items())}


def _offsets(given: Mapping[str, int]) -> dict[Partition, int]:
    return {_partition(name): at for name, at in given.items()}


def _partition(name: str) -> Partition:
    cluster, _, log = name.rpartition("/")
    topic, _, number = log.rpartition("-")
    return Partition(cluster, topic, int(number))
