"""Gold tables by Spark's shuffle: rows are read as DataFrames and spread by bucket, then reduced in workers.

The reducers are those of the tasks that read their rows themselves, and so are the files: a worker gets the
records or commits of one bucket in log order, writes its gold files and returns rows about them. Each bucket
is one partition of the shuffle, sorted by offset, which Spark spills to disk where memory is short.

A task of its own reads all rows of its log and drops those of other buckets before it makes anything of
them. The shuffle reads them once, but passes them through the JVM, to Python and in sort order. What is
faster depends on the number of buckets: see `konvene.pipeline.engine.SHUFFLE_FROM`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from konvene.pipeline.engine import Spark
from konvene.pipeline.gold.buckets import PARTITION_FACTOR, TOPIC_FACTOR, Bucket
from konvene.pipeline.gold.task import Task
from konvene.pipeline.gold.worker import Made, make
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.data_file import DataFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["make_by_shuffle"]

_READ = {
    "groups": (
        "groups",
        ("offset", "timestamp_ms", "batch_base_offset", "batch_last_offset", "key", "value", "key_type"),
    ),
    "lag": (
        "commits",
        (
            "cluster", "offset", "timestamp_ms", "tombstone", "group", "topic", "partition",
            "committed_offset", "commit_timestamp",
        ),
    ),
}  # fmt: skip
"""By kind of task: the word for the input files to shuffle, and their columns."""
_BUCKET = "bucket"


def make_by_shuffle(engine: Spark, tasks: Sequence[Task]) -> Iterator[Made]:
    """Run the tasks for all buckets of logs, and yield what each wrote."""
    logs: dict[tuple[str, Partition], Task] = {}
    for task in tasks:
        logs.setdefault((task.kind, task.of), task)

    def one(task: Task) -> list[Made]:
        rows = _mapped(_rows(engine.session, task), _reduce(task), "made string").collect()
        return [_made(row["made"]) for row in rows]

    for made in engine.jobs(one, list(logs.values())):
        yield from made


def _text(made: Made) -> str:
    of = made.of
    return json.dumps([made.kind, [of.cluster, of.topic, of.partition], made.bucket, made.files])


def _made(text: str) -> Made:
    """Return the value that `_text` encoded; tuples are lists in JSON."""
    kind, of, bucket, files = json.loads(text)
    return Made(kind, Partition(*of), Bucket(*bucket), [DataFile(*file) for file in files])


def _rows(session: SparkSession, task: Task) -> DataFrame:
    """Return the rows of a log, with one partition for each bucket, in log order."""
    from pyspark.sql import functions as sql

    word, columns = _READ[task.kind]
    by_table: dict[str, list[str]] = {}
    for file in task.inputs[word]:
        by_table.setdefault(file.table, []).append(f"{task.warehouse}/{file.path}")
    frames = [session.read.parquet(*paths) for _, paths in sorted(by_table.items())]
    selected = [frame.select(_hash(task.kind).alias(_BUCKET), *columns) for frame in frames]
    rows = selected[0]
    for frame in selected[1:]:
        rows = rows.unionAll(frame)
    count = task.bucket.of
    rows = rows.withColumn(_BUCKET, sql.expr(f"cast(pmod({_BUCKET}, {count}) as int)"))
    return rows.repartitionById(count, _BUCKET).sortWithinPartitions(_BUCKET, "offset")


def _hash(kind: str) -> Column:
    """Return the hash whose remainder is the bucket (`konvene.pipeline.gold.buckets`)."""
    from pyspark.sql import functions as sql

    if kind == "groups":
        return sql.expr("crc32(coalesce(group_id, ''))")
    return sql.expr(
        f"crc32(group) + {TOPIC_FACTOR} * crc32(topic) + {PARTITION_FACTOR} * cast(partition as bigint)"
    )


def _mapped(rows: DataFrame, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> DataFrame:
    """Do what `DataFrame.mapInArrow` does, which requires pandas without using it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(work, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def _reduce(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a worker applies to the rows of a bucket."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = iter(batches)
        first = next((batch for batch in found if batch.num_rows), None)
        if first is None:
            return
        ordinal = first.column(_BUCKET)[0].as_py()
        bucket = task.bucket._replace(ordinal=ordinal)

        def rows() -> Iterator[pa.RecordBatch]:
            yield first.drop_columns([_BUCKET])
            yield from (batch.drop_columns([_BUCKET]) for batch in found)

        made = make(task._replace(bucket=bucket), rows())
        yield pa.RecordBatch.from_arrays([pa.array([_text(made)], pa.string())], ["made"])

    return work
