"""Gold tables are a function of the ingested logs: complete, made once, and identical for every engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.segments import LOGS, Log, Record, all_files, cleaned, log, rows_of, sums_of, write

from konvene.pipeline.engine import Local, Processes
from konvene.pipeline.gold import worker
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.resume import Reached
from konvene.pipeline.gold.worker import GOLD_OF, RULES
from konvene.pipeline.ingest import offset_spans
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.progress import Progress
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.audit import Cause, RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated

GOLD = {name for names in GOLD_OF.values() for name in names}


def built_warehouse(home: Path, *paths: Path) -> Warehouse:
    warehouse = Warehouse(home)
    ingest(warehouse, paths, Local())
    build(warehouse, Local())
    return warehouse


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams", "transactions"])
def test_golden_logs_fill_all_gold_tables(tmp_path: Path, name: str) -> None:
    """All tables have rows with unique keys."""
    warehouse = built_warehouse(tmp_path, LOGS / name)
    of_others = set() if name == "share" else {"share_delivery", "share_progress"}
    of_others |= set() if name == "transactions" else {"transactional_commit"}
    for table in GOLD - of_others:
        rows = read.table(warehouse, table)
        assert rows.num_rows, table
        keys = list(zip(*(rows.column(c).to_pylist() for c in TABLES[table].key), strict=True))
        assert len(set(keys)) == len(keys), table
        assert rows.schema.equals(TABLES[table].schema)


def test_share_groups_have_deliveries(tmp_path: Path) -> None:
    warehouse = built_warehouse(tmp_path, LOGS / "share")
    rows = read.table(warehouse, "share_delivery")
    assert rows.num_rows == 16
    assert {f.topic for f in warehouse.files("share_delivery")} == {"__share_group_state"}


def test_new_rules_version_rebuilds_gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = built_warehouse(tmp_path, LOGS / "share")
    before = sums_of(warehouse)
    monkeypatch.setattr("konvene.pipeline.gold.build.RULES", RULES + 1)
    assert build(warehouse, Local()).tasks == 6
    assert sums_of(warehouse) == before, "the rules themselves have not changed"


def test_second_build_changes_nothing(tmp_path: Path) -> None:
    warehouse = built_warehouse(tmp_path, LOGS / "consumer")
    before, files = sums_of(warehouse), all_files(warehouse)
    assert build(warehouse, Local()).number is None
    assert (sums_of(warehouse), all_files(warehouse)) == (before, files)


def test_only_changed_partitions_are_rebuilt(tmp_path: Path) -> None:
    """One of two partitions grew: the other one's files stay, and the grown one's old files go."""
    for partition in (0, 1):
        write(tmp_path / "logs", log(partition, 30), partition=partition)
    warehouse = built_warehouse(tmp_path / "w", tmp_path / "logs")
    before = {f.path for f in warehouse.files("rebalance")}
    write(tmp_path / "logs", log(1, 60), partition=1)
    ingest(warehouse, [tmp_path / "logs"], Local())
    assert build(warehouse, Local()).tasks == 2
    after = {f.path for f in warehouse.files("rebalance")}
    assert [f.partition for f in warehouse.files("rebalance")] == [0, 1]
    assert len(before & after) == 1
    at_once = built_warehouse(tmp_path / "w2", tmp_path / "logs")
    for table in GOLD:
        assert read.table(warehouse, table).equals(read.table(at_once, table)), table
    assert [f.sha256 for f in warehouse.files("rebalance")] == [f.sha256 for f in at_once.files("rebalance")]


def test_engines_make_the_same_files(tmp_path: Path) -> None:
    """One process, several processes that finish in any order, or tasks in reverse order."""

    class Reversed(Local):
        def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
            return super().run(work, tasks[::-1])

    sums = []
    for n, engine in enumerate((Local(), Reversed(), Processes(2))):
        warehouse = Warehouse(tmp_path / str(n))
        ingest(warehouse, [LOGS / "classic", LOGS / "share" / "__share_group_state-2"], engine)
        build(warehouse, engine)
        sums.append(sums_of(warehouse))
    assert sums[0] == sums[1] == sums[2]


def test_audit_makes_a_rebalance_observed(tmp_path: Path) -> None:
    """Once the audit's row is ingested, the inferred rebalance becomes observed; only its partition is
    rebuilt."""
    for partition in (0, 1):
        write(tmp_path / "logs", log(5, 30), partition=partition)
    warehouse = built_warehouse(tmp_path / "w", tmp_path / "logs")
    rows = read.table(warehouse, "rebalance").to_pylist()
    assert {r["evidence"] for r in rows} <= {"inferred", "missing"}
    stable = next(r for r in rows if r["log_partition"] == 1 and r["state"] == "Stable")
    explanation = RebalanceValue(
        group_type="classic", epoch=stable["to_epoch"], state="Stable", partition=1,
        base_offset=stable["last_offset"], last_offset=stable["last_offset"],
        started_ms=5, joined_ms=6, ended_ms=7,
        causes=(Cause(kind="session-expired", at_ms=4, member_id="m"),),
    )  # fmt: skip
    key, value = encode_record(
        Coordinated(RebalanceKey(group=stable["group_id"]), explanation), AUDIT_RECORDS
    )
    write(tmp_path / "audit", [[Record(0, 9, key, value)]], topic="__konvene_audit")
    ingest(warehouse, [tmp_path / "audit"], Local())
    assert build(warehouse, Local()).tasks == 1
    after = read.table(warehouse, "rebalance").to_pylist()
    (observed,) = (r for r in after if r["evidence"] == "observed")
    assert (observed["log_partition"], observed["group_id"]) == (1, stable["group_id"])
    assert observed["cause"] == "session-expired"
    assert len(after) == len(rows)
    minutes = read.table(warehouse, "group_health").num_rows
    assert minutes < 5000, "the audit's start time of 1970 must not add minutes"


def test_gold_of_a_completed_log_equals_that_of_the_full_log(tmp_path: Path) -> None:
    """A compacted copy is ingested first; a complete copy then fills its gaps."""
    batches = log(5, 60)
    write(tmp_path / "cleaned", cleaned(batches, batches[50][0].offset), whole=batches)
    write(tmp_path / "whole", batches)
    warehouse = built_warehouse(tmp_path / "w", tmp_path / "cleaned")
    at_once = built_warehouse(tmp_path / "w2", tmp_path / "whole")
    assert read.table(warehouse, "rebalance").num_rows < read.table(at_once, "rebalance").num_rows
    ingest(warehouse, [tmp_path / "whole"], Local())
    build(warehouse, Local())
    for table in GOLD:
        assert rows_of(warehouse).get(table) == rows_of(at_once).get(table), table


def test_progress_is_reported_to_the_end(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / "consumer"], Local())
    reported: list[Progress] = []
    report = build(warehouse, Local(), progress=reported.append)
    assert reported[0].tasks_done == 0 and reported[-1].done == 1.0
    assert reported[-1].tasks_done == report.tasks == 4
    assert reported[-1].rows == report.rows
    steps = read.table(warehouse, "pipeline_run").column("step").to_pylist()
    assert steps == ["ingest", "build"]


# input of a reducer -------------------------------------------------------------------------------


class RecordingReducer:
    """Record the batches and records that a reducer receives."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []
        self.taken: list[tuple[int, bytes | None]] = []

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        self.calls.append((base_offset, last_offset, count))

    def take(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        self.taken.append((offset, value))


def _is_of_groups(record: Record) -> bool:
    return record.key is not None and record.key[:2] not in (b"\0\0", b"\0\1")


@pytest.mark.parametrize("seed", range(8))
def test_reducer_sees_exactly_the_real_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Batches of commits are not fed to the reducer, yet it finds exactly the gaps between the others."""
    monkeypatch.setattr(offset_spans, "WORTH", 12)
    chance = random.Random(seed)
    batches = log(seed, 120, groups=3)
    holes = {chance.randrange(batches[-1][-1].offset) for _ in range(12 if seed % 4 else 0)}
    left: Log = [[r for r in batch if r.offset not in holes] for batch in batches]
    write(tmp_path / "logs", left, cuts=[40, 80], whole=batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    tasks: list[worker.Task] = []
    monkeypatch.setattr(
        "konvene.pipeline.gold.build.make", lambda task: tasks.append(task) or worker.make(task)
    )
    build(warehouse, Local())
    (task,) = (t for t in tasks if t.kind == "groups")
    reducer = RecordingReducer()
    groups = task.inputs["groups"]
    for _ in worker._feed(task, reducer, groups, worker.Holes(task), Reached()):  # type: ignore[arg-type]
        pass
    assert reducer.taken == [(r.offset, r.value) for b in left for r in b if _is_of_groups(r)]
    ends, gaps = -1, {}
    for base, last, count in reducer.calls:
        assert base > ends
        gaps[base] = base != ends + 1 or count != last - base + 1
        ends = last
    before = -1
    for batch, full_batch in zip(left, batches, strict=True):
        if any(_is_of_groups(r) for r in batch):
            base, last = full_batch[0].offset, full_batch[-1].offset
            missing = any(offset in holes for offset in range(before + 1, last + 1))
            assert gaps[base] == missing, base
            before = last


def test_small_row_groups_have_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written as soon as a row group is full."""
    one = built_warehouse(tmp_path / "one", LOGS / "consumer")
    monkeypatch.setattr(read, "ROWS", 10)
    other = built_warehouse(tmp_path / "other", LOGS / "consumer")
    assert sums_of(one) == sums_of(other)
    rows: pa.Table = read.table(one, "rebalance")
    assert rows.num_rows == 37
