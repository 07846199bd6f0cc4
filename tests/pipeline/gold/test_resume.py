"""Gold that is built in steps equals gold that is built at once, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.reduce.playing import Played
from tests.pipeline.segments import LOGS, Record, cleaned, log, write
from tests.pipeline.streaming import (
    GOLD,
    built_at_once,
    built_in_steps,
    gold_rows,
    steps,
    sums,
    write_simulated_logs,
)

from konvene.pipeline.engine import Local
from konvene.pipeline.gold import worker
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.resume import HOME
from konvene.pipeline.gold.worker import GOLD_OF
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.ingest.splits import Replaced
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse


@pytest.fixture
def new_reducers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect one entry per newly created reducer; resumed ones are not counted."""
    created: list[int] = []

    class Counted(PartitionReducer):
        def __init__(self, *args: Any, **options: Any) -> None:
            created.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(worker, "PartitionReducer", Counted)
    return created


@pytest.fixture(scope="module")
def sums_of_golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Return the checksums of gold that is built at once of a golden log; each is built once."""

    @cache
    def built(name: str) -> dict[str, Any]:
        return sums(built_at_once(tmp_path_factory.mktemp(name), LOGS / name))

    return built


def names_in(warehouse: Warehouse) -> dict[str, str]:
    return {row["topic_id"]: row["topic"] for row in read.table(warehouse, "topic_name").to_pylist()}


@pytest.mark.parametrize("records", [40, 300])
@pytest.mark.parametrize("name", ["classic", "consumer", "streams", "share", "transactions"])
def test_steps_over_golden_logs_build_the_files_of_one_build(
    tmp_path: Path, new_reducers: list[int], sums_of_golden: Callable[[str], Any], name: str, records: int
) -> None:
    in_steps = built_in_steps(tmp_path / "w", LOGS / name, records)
    begun = len(new_reducers)
    assert sums(in_steps) == sums_of_golden(name)
    assert [sums(in_steps)[table] for table in GOLD if name != "share" and table == "ownership"] != [[]]
    groups = len({f.partition for f in in_steps.files("coordinator_record", "__consumer_offsets")})
    assert begun <= 3 * groups, "a reducer is created at most three times, and resumed otherwise"


@pytest.mark.parametrize(("kind", "seed"), [("classic", 1), ("consumer", 2), ("streams", 3), ("static", 4)])
def test_steps_over_a_simulated_log_build_the_coordinators_rebalances(
    tmp_path: Path, new_reducers: list[int], kind: str, seed: int
) -> None:
    """Batch, stream and live coordinator agree on a simulated log with its audit."""
    played = Played(kind, seed, steps=600)
    logs = write_simulated_logs(tmp_path / "logs", played)
    in_steps = built_in_steps(tmp_path / "w", logs, 25)
    assert len(new_reducers) <= 3
    assert sums(in_steps) == sums(built_at_once(tmp_path / "w2", logs))
    expected_rows, rows = played.rows(audit=True, names=names_in(in_steps)), gold_rows(in_steps)
    assert {row["evidence"] for row in rows["rebalance"]} >= {"observed"}
    for table, expected in expected_rows.items():
        found = [row | {"cluster": "c"} for row in rows[table]]
        assert json.dumps(found, default=str) == json.dumps(expected, default=str), table


def test_late_audit_rebuilds_gold(tmp_path: Path, new_reducers: list[int]) -> None:
    """The log is read first, its audit later: inferred causes are replaced."""
    played = Played("consumer", 2, steps=400)
    logs = write_simulated_logs(tmp_path / "logs", played)
    later = tmp_path / "later"
    (logs / "__konvene_audit-0").rename(later)
    built_in_steps(tmp_path / "w", logs, 20)
    begun = len(new_reducers)
    later.rename(logs / "__konvene_audit-0")
    warehouse = built_in_steps(tmp_path / "w", logs, 10_000)
    assert len(new_reducers) == begun + 1
    assert sums(warehouse) == sums(built_at_once(tmp_path / "w2", logs))


def test_renamed_topic_rebuilds_gold(tmp_path: Path, new_reducers: list[int]) -> None:
    """Rows with the old topic name are replaced."""
    played = Played("consumer", 2, steps=400)
    logs = write_simulated_logs(tmp_path / "logs", played)
    warehouse = built_in_steps(tmp_path / "w", logs, 20)
    begun, (topic_id,) = len(new_reducers), names_in(warehouse)
    folder = write(tmp_path / "logs", [[Record(0, 1, None, b"x")]], topic="renamed")[0].parent
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    warehouse = built_in_steps(tmp_path / "w", logs, 10_000)
    assert len(new_reducers) == begun + 1
    assert {row["topic"] for row in read.table(warehouse, "ownership").to_pylist()} == {"renamed"}
    assert sums(warehouse) == sums(built_at_once(tmp_path / "w2", logs))


def test_steps_over_a_compacted_log_build_the_same_group_tables(
    tmp_path: Path, new_reducers: list[int]
) -> None:
    """Missing evidence does not depend on the steps in which a compacted log is read."""
    batches = log(6, 200)
    write(tmp_path / "logs", cleaned(batches, batches[120][0].offset), cuts=[60, 150], whole=batches)
    in_steps = sums(built_in_steps(tmp_path / "w", tmp_path / "logs", 40))
    assert len(new_reducers) <= 3
    whole = sums(built_at_once(tmp_path / "w2", tmp_path / "logs"))
    assert whole["rebalance"] and whole["group_health"]
    for table in GOLD_OF["groups"]:
        assert in_steps[table] == whole[table], table


def test_completed_log_rebuilds_gold(tmp_path: Path) -> None:
    batches = log(5, 60)
    write(tmp_path / "cleaned", cleaned(batches, batches[50][0].offset), whole=batches)
    write(tmp_path / "whole", batches)
    warehouse = built_in_steps(tmp_path / "w", tmp_path / "cleaned", 40)
    ingest(warehouse, [tmp_path / "whole"], Local())
    step(warehouse, [], Local(), [str(tmp_path / "whole")])
    for table, rows in gold_rows(built_at_once(tmp_path / "w2", tmp_path / "whole")).items():
        assert read.table(warehouse, table).to_pylist() == rows, table


def test_lost_truncated_or_outdated_reducer_state_rebuilds_gold(
    tmp_path: Path, new_reducers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gold is rebuilt with the same result, and one state file per log is kept."""
    write(tmp_path / "logs", log(5, 90))
    whole = sums(built_at_once(tmp_path / "w2", tmp_path / "logs"))
    home = tmp_path / "w"
    for number, parts in enumerate(steps(tmp_path / "logs", 40)):
        before = len(new_reducers)
        step(Warehouse(home), parts, Local(), [str(tmp_path / "logs")])
        files = [path for path in (home / HOME).rglob("*") if path.is_file()]
        assert len(files) <= 2
        spoiled = number in (3, 5, 7)
        assert len(new_reducers) == before + (number < 2 or number - 1 in (3, 5, 7))
        for path in files if spoiled else ():
            if number == 3:
                path.unlink()
            elif number == 5:
                path.write_bytes(path.read_bytes()[:-20])
            else:
                monkeypatch.setattr("konvene.pipeline.gold.resume._code_digest", lambda: "another")
    assert number > 8
    assert sums(Warehouse(home)) == whole


def test_omitted_tables_can_be_built_later(tmp_path: Path, sums_of_golden: Callable[[str], Any]) -> None:
    """Rebalances are streamed; lag and deliveries are built on demand."""
    logs = LOGS / "consumer"
    for parts in steps(logs, 100):
        step(Warehouse(tmp_path / "w"), parts, Local(), [str(logs)], kinds=("groups",))
    warehouse = Warehouse(tmp_path / "w")
    assert warehouse.files("rebalance") and not warehouse.files("lag")
    build(warehouse, Local())
    assert sums(warehouse) == sums_of_golden("consumer")


def test_repeated_batch_commits_nothing(tmp_path: Path) -> None:
    """A stream that repeats a batch after a restart finds it committed."""
    logs = tmp_path / "logs"
    write(logs, log(5, 60))
    home = tmp_path / "w"
    for parts in steps(logs, 60):
        step(Warehouse(home), parts, Local(), [str(logs)])
        once = Warehouse(home).snapshot.number
        step(Warehouse(home), parts, Local(), [str(logs)])
        assert Warehouse(home).snapshot.number == once
    assert sums(Warehouse(home)) == sums(built_at_once(tmp_path / "w2", logs))


def test_replaced_file_fails_the_batch(tmp_path: Path) -> None:
    """The log cleaner replaced a planned file: the batch fails, and the next plan reads the new file."""
    logs = tmp_path / "logs"
    (path,) = write(logs, log(5, 60))
    (parts,) = steps(logs, 10_000)
    data = path.read_bytes()
    path.rename(tmp_path / "old")
    path.write_bytes(data)
    with pytest.raises(Replaced, match="changed while it was read"):
        step(Warehouse(tmp_path / "w"), parts, Local(), [str(logs)])
    assert Warehouse(tmp_path / "w").snapshot.number == 0
    assert sums(built_in_steps(tmp_path / "w", logs, 10_000)) == sums(built_at_once(tmp_path / "w2", logs))
