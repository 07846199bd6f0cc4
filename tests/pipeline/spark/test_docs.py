"""The examples of docs/spark.md and docs/spark-topics.md run, each page in its order, in one namespace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import ROOT, blocks, rows
from tests.pipeline.segments import START_MS, write
from tests.pipeline.sources.test_live import GROUPS, commit

from konvene.codec.batches import Record
from konvene.pipeline.spark.session import settings
from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"
TOPICS_PAGE = ROOT / "docs" / "spark-topics.md"
LOGS = ROOT / "tests" / "vectors" / "logs" / "consumer"


def test_options_on_the_pages_match_the_sources() -> None:
    """A page lists exactly its source's options, with the same descriptions."""
    from konvene.pipeline.sources import konvene_log
    from konvene.spark import options

    for page, known in ((PAGE, konvene_log.OPTIONS), (TOPICS_PAGE, options.OPTIONS)):
        listed = [[name.strip("`"), meaning] for name, meaning in rows(page, "options")]
        assert listed == [[name, meaning] for name, meaning in known.items()]


def run_examples(page: Path, replacements: dict[str, str]) -> dict[str, Any]:
    """Run the Python examples of a page with other paths and servers, and return their names."""
    namespace: dict[str, Any] = {}
    for block in blocks():
        if block.page == page and block.language == "python":
            text = block.text
            for text_on_page, replacement in replacements.items():
                text = text.replace(text_on_page, replacement)
            exec(compile("\n" * block.line + text, str(page), "exec"), namespace)
    return namespace


@pytest.mark.konvene(topics={"orders": 1})
def test_the_examples_run(
    spark: SparkSession, konvene: Konvene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs them with Kafka's golden logs, a live broker, and the shared Spark session of these tests."""
    commit(konvene, GROUPS, 1)
    monkeypatch.setattr("konvene.pipeline.spark.session.build", lambda *_, **__: spark)
    write(tmp_path, [[Record(0, START_MS, b"k", b"v")]], topic="orders")
    replacements = {
        "/var/kafka-logs/orders-0": str(tmp_path / "orders-0"), "/var/kafka-logs": str(LOGS),
        "localhost:9092": konvene.bootstrap,
        "/data": str(tmp_path),
    }  # fmt: skip
    namespace = run_examples(PAGE, replacements)
    assert namespace["records"].count() == 350
    assert namespace["commits"].columns[7:9] == ["group", "topic"]
    assert [row.value for row in namespace["orders"].collect()] == [b"v"]
    assert namespace["live"].count() == 0
    assert namespace["news"] == []
    assert spark.read.format("konvene-log").load(str(tmp_path / "spool")).count() == len(GROUPS)
    assert spark.read.parquet(str(tmp_path / "commits")).count() == namespace["commits"].count() > 0
    assert spark.sql("select * from rebalance").count() > 0
    assert namespace["rebalances"].count() == spark.sql("select * from rebalance").count()
    assert namespace["at_once"].count() == namespace["rebalances"].count()
    assert namespace["held"].where("valid_to_ms is not null").count() > 0


@pytest.mark.konvene(topics={"orders": 2})
def test_the_examples_with_topics_run(
    spark: SparkSession, konvene: Konvene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    konvene.produce("orders", [f"value {n}" for n in range(5)])
    monkeypatch.setattr("konvene.pipeline.spark.session.build", lambda *_, **__: spark)
    replacements = {"localhost:9092": konvene.bootstrap, "/data": str(tmp_path)}
    namespace = run_examples(TOPICS_PAGE, replacements)
    assert namespace["orders"].count() == namespace["values"].count() == 5
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 5


def test_session_settings_match_the_page() -> None:
    made = settings("local[2]")
    assert made["spark.master"] == "local[2,4]"
    assert made["spark.driver.memory"] == "512m"
    assert made["spark.python.unix.domain.socket.enabled"] == "true"
