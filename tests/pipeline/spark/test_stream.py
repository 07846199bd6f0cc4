"""A stream gives each record once: in small steps, over restarts, while the log grows, after a crash."""

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
    """Files of a batch, which a batch that is done again overwrites; it can be made to fail behind one."""

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
    """Everything that is there, and then an end."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def once(ends: dict[int, int]) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition, end in ends.items() for offset in range(end))


def written(folder: Path, records: int, **kinds: Any) -> int:
    """Writes a log and says where it ends."""
    from konvene.codec.batches import batches

    paths = write_log(folder, records, **kinds)
    *_, (header, _) = batches(paths[-1].read_bytes())
    return header.next_offset


def test_steps_are_small_and_nothing_is_lost_or_doubled_by_a_crash(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    """It ends behind a batch that was written and not noted, and goes on, while the log has grown."""
    from pyspark.errors import StreamingQueryException

    logs = tmp_path / "logs"
    ends = {0: written(logs, 900, segment_bytes=20_000), 1: written(logs, 400, partition=1)}
    sink.fails_behind = 2
    frame = stream(spark, logs, maxRecordsPerTrigger=300)
    with pytest.raises(StreamingQueryException, match="the disk is gone"):
        run(frame, sink, tmp_path / "checkpoint")
    assert max(sink.sizes) <= 300
    assert len(sink.sizes) == 3
    sink.fails_behind = -1
    ends[0] = written(logs, 1000, segment_bytes=20_000)
    ends[2] = written(logs, 50, partition=2)
    last = run(stream(spark, logs, maxRecordsPerTrigger=300), sink, tmp_path / "checkpoint").lastProgress
    assert sink.rows() == once(ends)
    assert max(sink.sizes) <= 300
    assert last is not None
    expected = {f"__consumer_offsets-{n}": end for n, end in ends.items()}
    assert json.loads(last.sources[0].endOffset) == expected
    before = list(sink.sizes)
    run(stream(spark, logs, maxRecordsPerTrigger=300), sink, tmp_path / "checkpoint")
    assert sink.sizes == before


def test_by_bytes_and_by_files_steps_are_small_too(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    end = written(logs, 600, segment_bytes=15_000)
    assert len(list((logs / "__consumer_offsets-0").glob("*.log"))) == 3
    run(stream(spark, logs, maxFilesPerTrigger=2), sink, tmp_path / "by-files")
    assert len(sink.sizes) == 2
    run(stream(spark, logs, maxBytesPerTrigger=12_000), sink, tmp_path / "by-bytes")
    assert sink.rows() == once({0: end})
    assert len(sink.sizes) > 3


@pytest.mark.konvene(topics={"orders": 1})
def test_a_live_cluster_is_followed(
    spark: SparkSession, konvene: Konvene, sink: Sink, tmp_path: Path
) -> None:
    """From where the last run ended; in steps of some records."""
    options = {"kafka.bootstrap.servers": konvene.bootstrap, "maxRecordsPerTrigger": 15}
    commit(konvene, GROUPS, 1)
    run(stream(spark, None, **options), sink, tmp_path / "checkpoint")
    assert sum(sink.sizes) == len(GROUPS)
    assert max(sink.sizes) <= 15
    commit(konvene, GROUPS, 2)
    run(stream(spark, None, **options), sink, tmp_path / "checkpoint")
    assert sum(sink.sizes) == 2 * len(GROUPS)
    assert set(sink.rows().values()) == {1}


def test_from_the_latest_what_was_there_is_left(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    began = written(logs, 300)
    options = {"startingOffsets": "latest"}
    query = stream(spark, logs, **options).writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(processingTime="0 seconds").start()
    try:
        running.processAllAvailable()
        end = written(logs, 500)
        running.processAllAvailable()
    finally:
        running.stop()
    assert sink.rows() == Counter((0, offset) for offset in range(began, end))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxRecordsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "give one of maxRecordsPerTrigger"),
        ({"startingOffsets": "7"}, "startingOffsets is earliest or latest"),
    ],
)
def test_what_cannot_be_streamed_is_refused_in_words(
    spark: SparkSession, sink: Sink, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    from pyspark.errors import StreamingQueryException

    written(tmp_path / "logs", 10)
    with pytest.raises(StreamingQueryException, match=says):
        run(stream(spark, tmp_path / "logs", **options), sink, tmp_path / "checkpoint")
