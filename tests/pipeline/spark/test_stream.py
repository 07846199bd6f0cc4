"""A Spark stream returns each record once: in small steps, over restarts and crashes, while the log grows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.coordinator_log import write_log
from tests.pipeline.sources.test_live import GROUPS, commit

from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "partition int, offset bigint"


def stream(spark: SparkSession, path: Path | None, **options: Any) -> DataFrame:
    reader = spark.readStream.format("konvene-log").schema(SCHEMA).options(**options)
    return reader.load(str(path)) if path else reader.load()


class Sink:
    """Write each batch to a file that a repeated batch overwrites; can be made to fail after a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fails_behind = -1
        self.sizes: list[int] = []

    def __repr__(self) -> str:
        return f"Sink({self.folder})"

    def __call__(self, batch: DataFrame, number: int) -> None:
        found = [f"{row.partition} {row.offset}" for row in batch.collect()]
        (self.folder / f"{number:04}").write_text("\n".join(found))
        self.sizes.append(len(found))
        if number == self.fails_behind:
            raise OSError("the disk is gone")

    def rows(self) -> Counter[tuple[int, int]]:
        lines = [line for path in sorted(self.folder.iterdir()) for line in path.read_text().splitlines()]
        return Counter((int(partition), int(offset)) for partition, offset in map(str.split, lines))


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    (tmp_path / "out").mkdir()
    return Sink(tmp_path / "out")


def run(frame: DataFrame, sink: Sink, checkpoint: Path) -> StreamingQuery:
    """Stream everything that is available, then stop."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def once(ends: dict[int, int]) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition, end in ends.items() for offset in range(end))


def write_records(folder: Path, records: int, **kinds: Any) -> int:
    """Write a log and return its end offset."""
    from konvene.codec.batches import batches

    paths = write_log(folder, records, **kinds)
    *_, (header, _) = batches(paths[-1].read_bytes())
    return header.next_offset


def test_crash_loses_and_duplicates_no_record(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    """It fails after a batch was written but not committed, and resumes after the log has grown."""
    from pyspark.errors import StreamingQueryException

    logs = tmp_path / "logs"
    ends = {0: write_records(logs, 900, segment_bytes=20_000), 1: write_records(logs, 400, partition=1)}
    sink.fails_behind = 2
    frame = stream(spark, logs, maxRecordsPerTrigger=300)
    with pytest.raises(StreamingQueryException, match="the disk is gone"):
        run(frame, sink, tmp_path / "checkpoint")
    assert max(sink.sizes) <= 300
    assert len(sink.sizes) == 3
    sink.fails_behind = -1
    ends[0] = write_records(logs, 1000, segment_bytes=20_000)
    ends[2] = write_records(logs, 50, partition=2)
    last = run(stream(spark, logs, maxRecordsPerTrigger=300), sink, tmp_path / "checkpoint").lastProgress
    assert sink.rows() == once(ends)
    assert max(sink.sizes) <= 300
    assert last is not None
    expected = {f"__consumer_offsets-{n}": end for n, end in ends.items()}
    assert json.loads(last.sources[0].endOffset) == expected
    before = list(sink.sizes)
    run(stream(spark, logs, maxRecordsPerTrigger=300), sink, tmp_path / "checkpoint")
    assert sink.sizes == before


def test_steps_are_limited_by_bytes_and_files(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    end = write_records(logs, 600, segment_bytes=15_000)
    assert len(list((logs / "__consumer_offsets-0").glob("*.log"))) == 3
    run(stream(spark, logs, maxFilesPerTrigger=2), sink, tmp_path / "by-files")
    assert len(sink.sizes) == 2
    run(stream(spark, logs, maxBytesPerTrigger=12_000), sink, tmp_path / "by-bytes")
    assert sink.rows() == once({0: end})
    assert len(sink.sizes) > 3


@pytest.mark.konvene(topics={"orders": 1})
def test_live_cluster_is_followed_across_runs(
    spark: SparkSession, konvene: Konvene, sink: Sink, tmp_path: Path
) -> None:
    """Each run starts where the last one ended, in steps of a few records."""
    options = {"kafka.bootstrap.servers": konvene.bootstrap, "maxRecordsPerTrigger": 15}
    commit(konvene, GROUPS, 1)
    run(stream(spark, None, **options), sink, tmp_path / "checkpoint")
    assert sum(sink.sizes) == len(GROUPS)
    assert max(sink.sizes) <= 15
    commit(konvene, GROUPS, 2)
    run(stream(spark, None, **options), sink, tmp_path / "checkpoint")
    assert sum(sink.sizes) == 2 * len(GROUPS)
    assert set(sink.rows().values()) == {1}


def test_starting_from_latest_skips_existing_records(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    began = write_records(logs, 300)
    options = {"startingOffsets": "latest"}
    query = stream(spark, logs, **options).writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(processingTime="0 seconds").start()
    try:
        running.processAllAvailable()
        end = write_records(logs, 500)
        running.processAllAvailable()
    finally:
        running.stop()
    assert sink.rows() == Counter((0, offset) for offset in range(began, end))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxRecordsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "give one of maxRecordsPerTrigger"),
        ({"startingOffsets": "7"}, "startingOffsets is earliest or latest"),
    ],
)
def test_invalid_stream_options_are_rejected_with_a_message(
    spark: SparkSession, sink: Sink, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import StreamingQueryException

    write_records(tmp_path / "logs", 10)
    with pytest.raises(StreamingQueryException, match=message):
        run(stream(spark, tmp_path / "logs", **options), sink, tmp_path / "checkpoint")
