"""Spark data source `konvene-log`: coordinators' logs as batch and streaming data frames.

    spark.read.format("konvene-log").option("table", "coordinator_record").load("/var/kafka-logs")
    spark.readStream.format("konvene-log").option("kafka.bootstrap.servers", "localhost:9092").load()

A secured cluster takes `command.config`, a properties file, and the other `kafka.` settings of clients;
secrets are accepted in the file only (`client_config`).

`table` is `record` for users' topics, a bronze or silver table of coordinators' logs (`TABLES_OF_LOGS`), or a
gold table, which tasks compute (`gold_rows`). Tasks decode the records, by columns; the driver plans them
from file names and a few headers. With an explicit schema (`.schema("offset bigint, key binary")`) all other
columns are dropped before they reach Spark. A path that does not have the table is rejected.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
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
from konvene.pipeline.sources.decode import TABLES_OF_LOGS, Reading, reading, table_of
from konvene.pipeline.sources.files import Partition, find, topic_of
from konvene.pipeline.sources.gold_rows import GOLD, GoldTask, gold_rows, gold_tasks
from konvene.pipeline.sources.limits import Limit
from konvene.pipeline.sources.plan import Files, Live, Slice, Source, Wanted
from konvene.pipeline.sources.types import conversion, spark_schema
from konvene.pipeline.tables.record import RECORD
from konvene.pipeline.warehouse.read import schema_of

__all__ = ["KonveneLog"]

SERVERS = f"{PREFIX}bootstrap.servers"
OPTIONS = {
    "path": "A segment, partition directory or data directory; `load` takes several.",
    SERVERS: "A live cluster, konvene's or Kafka's, instead of paths.",
    CONFIG_OPTION: "A properties file with client settings for a live cluster, on each machine or added with "
    "`addFile` [`KONVENE_COMMAND_CONFIG`].",
    "kafka.*": "Client settings that are no secrets, such as `kafka.security.protocol`; they override the "
    "file.",
    "table": "The table to read [coordinator_record; record for paths of users' topics].",
    "topics": "Only these topics, such as `orders,payments`; `record` of a live cluster needs them.",
    "isolationLevel": "For `record`: `read_uncommitted` [read_uncommitted], or `read_committed` for batch "
    "reads of files.",
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
_OF_ANY_TOPIC = ("record", "quarantine")
"""Tables that are read from the logs of any topic that is named."""
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
        self._paths = _paths(options)
        self._topics = _topics(options)
        of_paths = [topic_of(path) for path in self._paths]
        self._named = self._topics or (frozenset() if None in of_paths else frozenset(map(str, of_paths)))
        tables = {table_of(topic) for topic in self._named}
        self._table = options.get("table", tables.pop() if len(tables) == 1 else "coordinator_record")
        isolation = options.get("isolationLevel", "read_uncommitted")
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError("isolationLevel is read_uncommitted or read_committed")
        self._is_committed = isolation == "read_committed"
        tables_known = sorted(GOLD | TABLES_OF_LOGS.keys())
        if self._table not in tables_known:
            raise ValueError(f"konvene-log has no table {self._table}; it has {', '.join(tables_known)}")
        self._reading = None
        if self._table in TABLES_OF_LOGS or self._is_committed:
            self._reading = reading(self._table, committed=self._is_committed)

    @classmethod
    def name(cls) -> str:
        return "konvene-log"

    def schema(self) -> StructType:
        return spark_schema(schema_of(self._table) if self._reading is None else self._reading.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._reading is None:
            if "offsets" in self.options or self._topics:
                raise ValueError(
                    f"the table {self._table} follows from whole logs: give no offsets or topics"
                )
            wanted = chosen(Wanted(re.compile(".*")), self.options)
            return GoldReader(self._table, wanted, self._source(), schema)
        return BatchReader(self._reading, self._wanted(self._reading), self._source(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._reading is None:
            raise ValueError(
                f"a stream cannot read the table {self._table} from logs: konvene.pipeline.spark.stream.gold "
                "keeps it up to date in a warehouse"
            )
        if self._is_committed:
            raise ValueError("a stream reads records as they are written: it is read_uncommitted")
        options = dict(self.options)
        return StreamReader(self._reading, self._wanted(self._reading), self._source(), schema, options)

    def _wanted(self, how: Reading) -> Wanted:
        wanted = how.wanted
        if how.table in _OF_ANY_TOPIC and self._named:
            wanted = replace(wanted, topics=_pattern(self._named))
        unfit = [topic for topic in sorted(self._named) if wanted.topics.fullmatch(topic) is None]
        if unfit and (self._topics or len(unfit) == len(self._named)):
            raise WrongTable(how.table, *unfit)
        if self._topics:
            wanted = replace(wanted, topics=_pattern(self._topics))
        return chosen(wanted, self.options)

    def _source(self) -> Source:
        options = self.options
        cluster = options.get("cluster", "")
        if (SERVERS in options) == bool(self._paths):
            raise ValueError(f"konvene-log reads paths (load) or {SERVERS}: give one of them")
        if not self._paths:
            topics = tuple(sorted(self._topics)) or (self._reading.topics if self._reading else ())
            if self._reading is not None and not topics:
                raise ValueError(f"name the topics of which the table {self._table} is to be read: topics")
            return Live(options[SERVERS], cluster, topics, self._client)
        return Files(self._paths, cluster, int(options.get("taskBytes", TASK_BYTES)))


def _pattern(topics: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(topics))))


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths = json.loads(options["paths"]) if "paths" in options else []
    paths += [options["path"]] if "path" in options else []
    return tuple(re.sub(r"^file:(//)?(?=/)", "", path) for path in paths)


def _topics(options: Mapping[str, str]) -> frozenset[str]:
    return frozenset(filter(None, options.get("topics", "").replace(" ", "").split(",")))


class WrongTable(ValueError):
    """The logs do not have the table; the message names the one that they have."""

    def __init__(self, table: str, *topics: str) -> None:
        tables = " or ".join(sorted({table_of(topic) for topic in topics}))
        names = ", ".join(topics[:5]) + (" …" if len(topics) > 5 else "")
        super().__init__(f"logs of {names} do not have the table {table}: ask for the table {tables}")


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
        if not places and isinstance(self._source, Files):
            self._check_topics(self._source)
        start = {of: place.first for of, place in places.items()}
        end = {of: place.next for of, place in places.items()}
        return [Part(each) for each in self._source.slices(self._wanted, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._reading, self._schema, partition)

    def _check_topics(self, source: Files) -> None:
        """Raise `WrongTable` if the paths have no log that could have the table, but others."""
        there = {of.topic for of in find(source.paths, source.cluster).partitions()}
        is_of_users = not self._reading.topics
        if there and all((table_of(topic) == RECORD.name) != is_of_users for topic in there):
            raise WrongTable(self._reading.table, *sorted(there))


class GoldReader(DataSourceReader):
    """Reader of a gold table, which its tasks compute."""

    def __init__(self, table: str, wanted: Wanted, source: Source, schema: StructType) -> None:
        self._table = table
        self._wanted = wanted
        self._source = source
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        tasks = gold_tasks(self._table, self._source, self._wanted)
        if not tasks and isinstance(self._source, Files) and self._wanted.partitions is None:
            found = find(self._source.paths, self._source.cluster)
            raise WrongTable(self._table, *sorted({of.topic for of in found.partitions()}))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: GoldTask | None = partition.value
        rows = () if task is None else gold_rows(task, self._schema.names)
        return map(conversion(self._schema), rows)


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
