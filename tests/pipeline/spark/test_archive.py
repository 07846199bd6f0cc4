"""Spark reads a cleaned log with its archive as the log before cleaning, in a query and in a stream."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.ingest.test_archive import clean, logs_of, removed
from tests.pipeline.spark.test_source import read
from tests.pipeline.streaming import built_at_once, sums

from konvene.pipeline.spark import stream as streams
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("audit", [True, False], ids=["audit", "no-audit"])
def test_a_query_and_a_stream_have_the_whole_history(
    spark: SparkSession, tmp_path: Path, audit: bool
) -> None:
    whole = logs_of(tmp_path / "whole", "classic", 2, audit=audit)
    data, kept = tmp_path / "data", tmp_path / "kept"
    shutil.copytree(whole, data)
    assert removed(clean(data, kept)) > 50
    expected = built_at_once(tmp_path / "w0", whole)

    def rows(*paths: Path) -> list[str]:
        found = read(spark, "coordinator_record", *paths).select(
            "topic", "partition", "offset", "key", "value"
        )
        return sorted(map(repr, found.toArrow().to_pylist()))

    assert rows(data, kept) == rows(whole)
    assert len(rows(data)) < len(rows(whole))
    query = streams.gold(
        spark, [str(data), str(kept)], str(tmp_path / "w1"), checkpoint=str(tmp_path / "c"), once=True,
        maxRecordsPerTrigger="300",
    )  # fmt: skip
    query.awaitTermination()
    assert sums(Warehouse(tmp_path / "w1")) == sums(expected)
