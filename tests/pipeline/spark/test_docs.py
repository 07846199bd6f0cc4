"""The examples of docs/spark.md run, in their order, each on what the ones before it left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import ROOT, blocks, rows
from tests.pipeline.sources.test_live import GROUPS, commit

from konvene.pipeline.spark.session import settings
from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"
LOGS = ROOT / "tests" / "vectors" / "logs" / "consumer"


def test_the_options_are_the_pages() -> None:
    """None is missing, none is made up, and they mean what the code says."""
    from konvene.pipeline.sources.konvene_log import OPTIONS

    told = [[name.strip("`"), meaning] for name, meaning in rows(PAGE, "options")]
    assert told == [[name, meaning] for name, meaning in OPTIONS.items()]


@pytest.mark.konvene(topics={"orders": 1})
def test_the_examples_run(
    spark: SparkSession, konvene: Konvene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With logs of Kafka's, a live broker, and the session of these tests in place of one of their own."""
    commit(konvene, GROUPS, 1)
    monkeypatch.setattr("konvene.pipeline.spark.session.build", lambda *_, **__: spark)
    places = {
        "/var/kafka-logs": str(LOGS), "localhost:9092": konvene.bootstrap, "/data": str(tmp_path),
    }  # fmt: skip
    left: dict[str, Any] = {}
    for block in blocks():
        if block.page == PAGE and block.language == "python":
            text = block.text
            for place, ours in places.items():
                text = text.replace(place, ours)
            exec(compile("\n" * block.line + text, str(PAGE), "exec"), left)
    assert left["records"].count() == 350
    assert left["commits"].columns[7:9] == ["group", "topic"]
    assert left["live"].count() == 0
    assert left["news"] == []
    assert spark.read.format("konvene-log").load(str(tmp_path / "spool")).count() == len(GROUPS)
    assert spark.read.parquet(str(tmp_path / "commits")).count() == left["commits"].count() > 0
    assert spark.sql("select * from rebalance").count() > 0
    assert left["rebalances"].count() == spark.sql("select * from rebalance").count()
    assert left["held"].where("valid_to_ms is not null").count() > 0


def test_what_the_page_says_of_a_session_is_so() -> None:
    made = settings("local[2]")
    assert made["spark.master"] == "local[2,4]"
    assert made["spark.driver.memory"] == "512m"
    assert made["spark.python.unix.domain.socket.enabled"] == "true"
