"""Gold that is made a little at a time is that which is made at one go: the same files, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.reduce.playing import Played
from tests.pipeline.segments import LOGS, Record, cleaned, log, write
from tests.pipeline.streaming import GOLD, at_once, gold_rows, lived, steps, streamed, sums

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
def anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows whenever a reducer is begun; what went on where another was is not counted."""
    made: list[int] = []

    class Counted(PartitionReducer):
        def __init__(self, *given: Any) -> None:
            made.append(1)
            super().__init__(*given)

    monkeypatch.setattr(worker, "PartitionReducer", Counted)
    return made


def names_in(warehouse: Warehouse) -> dict[str, str]:
    return {row["topic_id"]: row["topic"] for row in read.table(warehouse, "topic_name").to_pylist()}


@pytest.mark.parametrize("records", [40, 300])
@pytest.mark.parametrize("name", ["classic", "consumer", "streams", "share", "transactions"])
def test_kafkas_logs_in_steps_come_to_the_files_of_one_go(
    tmp_path: Path, anew: list[int], name: str, records: int
) -> None:
    in_steps = streamed(tmp_path / "w", LOGS / name, records)
    begun = len(anew)
    whole = at_once(tmp_path / "w2", LOGS / name)
    assert sums(in_steps) == sums(whole)
    assert [sums(in_steps)[table] for table in GOLD if name != "share" and table == "ownership"] != [[]]
    groups = len({f.partition for f in in_steps.files("coordinator_record", "__consumer_offsets")})
    assert begun <= 3 * groups, "it is begun once or twice, and gone on with then"


@pytest.mark.parametrize(("kind", "seed"), [("classic", 1), ("consumer", 2), ("streams", 3), ("static", 4)])
def test_so_does_a_simulated_life_and_what_its_coordinator_says_of_it(
    tmp_path: Path, anew: list[int], kind: str, seed: int
) -> None:
    """Batch, stream and the live coordinator: log and audit, side by side and apart from one another."""
    played = Played(kind, seed, steps=600)
    logs = lived(tmp_path / "logs", played)
    in_steps = streamed(tmp_path / "w", logs, 25)
    assert len(anew) <= 3
    assert sums(in_steps) == sums(at_once(tmp_path / "w2", logs))
    told, rows = played.rows(audit=True, names=names_in(in_steps)), gold_rows(in_steps)
    assert {row["evidence"] for row in rows["rebalance"]} >= {"observed"}
    for table, expected in told.items():
        ours = [row | {"cluster": "c"} for row in rows[table]]
        assert json.dumps(ours, default=str) == json.dumps(expected, default=str), table


def test_an_audit_that_comes_late_makes_it_anew(tmp_path: Path, anew: list[int]) -> None:
    """First the log, then what was said of it: nothing that was inferred stays so."""
    played = Played("consumer", 2, steps=400)
    logs = lived(tmp_path / "logs", played)
    later = tmp_path / "later"
    (logs / "__konvene_audit-0").rename(later)
    streamed(tmp_path / "w", logs, 20)
    begun = len(anew)
    later.rename(logs / "__konvene_audit-0")
    warehouse = streamed(tmp_path / "w", logs, 10_000)
    assert len(anew) == begun + 1
    assert sums(warehouse) == sums(at_once(tmp_path / "w2", logs))


def test_a_topic_that_gets_another_name_makes_it_anew(tmp_path: Path, anew: list[int]) -> None:
    """What was told of it by its old name is told by the new one."""
    played = Played("consumer", 2, steps=400)
    logs = lived(tmp_path / "logs", played)
    warehouse = streamed(tmp_path / "w", logs, 20)
    begun, (topic_id,) = len(anew), names_in(warehouse)
    folder = write(tmp_path / "logs", [[Record(0, 1, None, b"x")]], topic="renamed")[0].parent
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    warehouse = streamed(tmp_path / "w", logs, 10_000)
    assert len(anew) == begun + 1
    assert {row["topic"] for row in read.table(warehouse, "ownership").to_pylist()} == {"renamed"}
    assert sums(warehouse) == sums(at_once(tmp_path / "w2", logs))


def test_of_a_cleaned_log_the_same_is_told_of_groups(tmp_path: Path, anew: list[int]) -> None:
    """Where records are missing does not depend on how it was read."""
    batches = log(6, 200)
    write(tmp_path / "logs", cleaned(batches, batches[120][0].offset), cuts=[60, 150], whole=batches)
    in_steps = sums(streamed(tmp_path / "w", tmp_path / "logs", 40))
    assert len(anew) <= 3
    whole = sums(at_once(tmp_path / "w2", tmp_path / "logs"))
    assert whole["rebalance"] and whole["group_health"]
    for table in GOLD_OF["groups"]:
        assert in_steps[table] == whole[table], table


def test_a_log_that_is_filled_in_is_made_anew(tmp_path: Path) -> None:
    batches = log(5, 60)
    write(tmp_path / "cleaned", cleaned(batches, batches[50][0].offset), whole=batches)
    write(tmp_path / "whole", batches)
    warehouse = streamed(tmp_path / "w", tmp_path / "cleaned", 40)
    ingest(warehouse, [tmp_path / "whole"], Local())
    step(warehouse, [], Local(), [str(tmp_path / "whole")])
    for table, rows in gold_rows(at_once(tmp_path / "w2", tmp_path / "whole")).items():
        assert read.table(warehouse, table).to_pylist() == rows, table


def test_what_is_kept_may_be_lost_cut_off_or_of_another_code(
    tmp_path: Path, anew: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all is made anew, and is the same; and one file for each log is what is kept."""
    write(tmp_path / "logs", log(5, 90))
    whole = sums(at_once(tmp_path / "w2", tmp_path / "logs"))
    home = tmp_path / "w"
    for number, parts in enumerate(steps(tmp_path / "logs", 40)):
        before = len(anew)
        step(Warehouse(home), parts, Local(), [str(tmp_path / "logs")])
        files = [path for path in (home / HOME).rglob("*") if path.is_file()]
        assert len(files) <= 2
        spoiled = number in (3, 5, 7)
        assert len(anew) == before + (number < 2 or number - 1 in (3, 5, 7))
        for path in files if spoiled else ():
            if number == 3:
                path.unlink()
            elif number == 5:
                path.write_bytes(path.read_bytes()[:-20])
            else:
                monkeypatch.setattr("konvene.pipeline.gold.resume._code_digest", lambda: "another")
    assert number > 8
    assert sums(Warehouse(home)) == whole


def test_what_is_left_out_at_first_can_be_made_later(tmp_path: Path) -> None:
    """Rebalances as they happen; lag and deliveries when somebody asks."""
    logs = LOGS / "consumer"
    for parts in steps(logs, 100):
        step(Warehouse(tmp_path / "w"), parts, Local(), [str(logs)], kinds=("groups",))
    warehouse = Warehouse(tmp_path / "w")
    assert warehouse.files("rebalance") and not warehouse.files("lag")
    build(warehouse, Local())
    assert sums(warehouse) == sums(at_once(tmp_path / "w2", logs))


def test_what_a_batch_did_is_not_done_twice(tmp_path: Path) -> None:
    """A stream that does a batch again, because it does not know of it, finds it done."""
    logs = tmp_path / "logs"
    write(logs, log(5, 60))
    home = tmp_path / "w"
    for parts in steps(logs, 60):
        step(Warehouse(home), parts, Local(), [str(logs)])
        once = Warehouse(home).snapshot.number
        step(Warehouse(home), parts, Local(), [str(logs)])
        assert Warehouse(home).snapshot.number == once
    assert sums(Warehouse(home)) == sums(at_once(tmp_path / "w2", logs))


def test_a_file_that_was_replaced_is_not_passed_over(tmp_path: Path) -> None:
    """A cleaner put another file in its place before it was read: the batch fails, and is planned anew."""
    logs = tmp_path / "logs"
    (path,) = write(logs, log(5, 60))
    (parts,) = steps(logs, 10_000)
    data = path.read_bytes()
    path.rename(tmp_path / "old")
    path.write_bytes(data)
    with pytest.raises(Replaced, match="changed while it was read"):
        step(Warehouse(tmp_path / "w"), parts, Local(), [str(logs)])
    assert Warehouse(tmp_path / "w").snapshot.number == 0
    assert sums(streamed(tmp_path / "w", logs, 10_000)) == sums(at_once(tmp_path / "w2", logs))
