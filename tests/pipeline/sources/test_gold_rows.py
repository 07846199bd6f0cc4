"""Gold tables that the data source computes have the rows that `ingest` and `build` give."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.gold_rows import GOLD, gold_rows, gold_tasks
from konvene.pipeline.sources.plan import Files, Wanted
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
ALL = Wanted(re.compile(".*"))


def computed(table: str, *paths: Path, wanted: Wanted = ALL) -> pa.Table:
    tasks = gold_tasks(table, Files(tuple(map(str, paths)), "golden"), wanted)
    return pa.Table.from_batches(
        [batch for task in tasks for batch in gold_rows(task)], read.schema_of(table)
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("scenario", ["classic", "consumer", "share", "streams", "transactions"])
def test_rows_match_those_of_a_build(tmp_path: Path, scenario: str) -> None:
    """Every gold table of Kafka's golden logs."""
    warehouse = Warehouse(tmp_path / "built")
    ingest(warehouse, [LOGS / scenario], Local(), cluster="golden")
    build(warehouse, Local())
    for table in sorted(GOLD):
        assert rows(computed(table, LOGS / scenario)) == rows(read.table(warehouse, table)), table


def test_tables_of_groups_are_a_task_for_each_partition(tmp_path: Path) -> None:
    source = Files((str(LOGS / "consumer"),))
    tasks = gold_tasks("rebalance", source, ALL)
    assert [[Path(file).parent.name for file in task.files] for task in tasks] == [
        ["__consumer_offsets-0"], ["__consumer_offsets-1"],
    ]  # fmt: skip
    assert len(gold_tasks("lag", source, ALL)) == 1
    one = Wanted(ALL.topics, frozenset({1}))
    found = computed("rebalance", LOGS / "consumer", wanted=one)
    assert 0 < found.num_rows < computed("rebalance", LOGS / "consumer").num_rows


def test_topics_are_named_as_directories_name_them(tmp_path: Path) -> None:
    """A directory of a user's topic names the topic of an id, as in an ingest of the whole directory."""
    shutil.copytree(LOGS / "consumer", tmp_path / "logs")
    named = computed("ownership", tmp_path / "logs")
    (topic_id,) = sorted({row["topic"] for row in named.to_pylist()})[:1]
    folder = tmp_path / "logs" / "renamed-0"
    folder.mkdir()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    found = {row["topic"] for row in computed("ownership", tmp_path / "logs").to_pylist()}
    assert "renamed" in found
