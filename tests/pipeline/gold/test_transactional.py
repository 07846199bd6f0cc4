"""Each commit of a transaction has the outcome that a coordinator's replay of the log gives it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.commit_logs import LOGS, bronze, commit, marker, silver

from konvene.groups.shard import GroupShard
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.commits import Ended, effects
from konvene.pipeline.gold.transactional import names_of, rows_of
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.commits import Committed, OffsetCommitted
from konvene.records.transactional import InTransaction

SHOWN = ("group_id", "partition", "committed_offset", "transactional_id", "outcome", "counted")


def cut(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches(max_chunksize=size)


def outcome_rows(rows: list[dict[str, Any]], size: int = 1000) -> list[dict[str, Any]]:
    """Return the table's rows for commits and markers that are read in batches of `size`."""
    found: list[dict[str, Any]] = []

    def ended(some: Ended) -> None:
        found.extend(rows_of(some, 3, {7: "seven"}).to_pylist())

    for _ in effects(cut(silver(rows), size), cut(bronze(rows), max(1, size - 2)), ended):
        pass
    return found


def test_outcomes_of_transactional_commits() -> None:
    """Committed and counted, superseded, aborted, deleted, and pending, in the order of their ends."""
    rows = [
        commit(0, 10, 5, producer=7),
        commit(1, 20, 6, "g/t/1", producer=8),
        commit(2, 30, 1),
        marker(3, 40, 8, "COMMIT"),
        marker(4, 50, 7, "COMMIT"),
        commit(5, 60, 9, producer=7),
        marker(6, 70, 7, "ABORT"),
        commit(7, 80, 2, "g/t/2", producer=7),
        commit(8, 90, None, "g/t/2"),
        marker(9, 100, 7, "COMMIT"),
        commit(10, 110, 4, producer=8),
    ]
    expected = [
        (1, 6, 8, None, "committed", 3, 40, True),
        (0, 5, 7, "seven", "committed", 4, 50, False),
        (5, 9, 7, "seven", "aborted", 6, 70, False),
        (7, 2, 7, "seven", "committed", 9, 100, False),
        (10, 4, 8, None, "pending", None, None, None),
    ]
    names = (
        "log_offset", "committed_offset", "producer_id", "transactional_id", "outcome", "ended_offset",
        "ended_ms", "counted",
    )  # fmt: skip
    for size in (1, 2, 3, 100):
        found = outcome_rows(rows, size)
        assert [tuple(row[name] for name in names) for row in found] == expected, size
        assert {row["log_partition"] for row in found} == {3}
        assert {row["producer_epoch"] for row in found} == {0}


def by_replay(rows: list[dict[str, Any]]) -> list[tuple[int, str, bool | None]]:
    """Return the offset, outcome and effect of each commit by a coordinator's replay."""
    shard, held, found = GroupShard(), dict[int, list[tuple[int, OffsetCommitted]]](), []
    for row in rows:
        producer_id = row["producer"]
        if "control" in row:
            committed = row["control"] == "COMMIT"
            counts = shard.pending.end(producer_id, committed)
            for at, record in held.pop(producer_id, []):
                found.append((at, "committed" if committed else "aborted", record in counts))
            continue
        group, topic, partition = row["key"].split("/")
        value = None if row["committed"] is None else Committed(row["committed"], commit_ms=row["offset"])
        record = OffsetCommitted(group, topic, int(partition), value)
        if producer_id >= 0 and value is not None:
            held.setdefault(producer_id, []).append((row["offset"], record))
            shard.replay(InTransaction(producer_id, record))
        else:
            shard.replay(record)
    left = sorted(at for some in held.values() for at, _ in some)
    return found + [(at, "pending", None) for at in left]


@pytest.mark.parametrize("seed", range(20))
def test_outcomes_match_the_coordinators_replay(seed: int) -> None:
    """Random logs, split into batches of any size."""
    random = Random(seed)
    rows: list[dict[str, Any]] = []
    for at in range(80):
        producer_id, key = random.randrange(3), f"g/t/{random.randrange(3)}"
        kind = random.random()
        if kind < 0.3:
            rows.append(marker(at, at, producer_id, random.choice(["COMMIT", "ABORT"])))
        elif kind < 0.4:
            rows.append(commit(at, at, None, key))
        else:
            rows.append(commit(at, at, at, key, producer=producer_id if kind < 0.8 else -1))
    size = random.choice([1, 5, 13, 200])
    found = [(row["log_offset"], row["outcome"], row["counted"]) for row in outcome_rows(rows, size)]
    assert found == by_replay(rows)


def test_outcomes_of_kafkas_golden_log(tmp_path: Path) -> None:
    """Two groups with committed, aborted and fenced transactions, one superseded by a plain commit.

    The log of transactions gives their transactional ids."""
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / "transactions"], Local())
    build(warehouse, Local())
    table = read.table(warehouse, "transactional_commit")
    assert table.schema.equals(TABLES["transactional_commit"].schema)
    assert [tuple(row[name] for name in SHOWN) for row in table.to_pylist()] == [
        (f"eos-{kind}", partition, offset, f"tx-{kind}", outcome, counted)
        for kind in ("classic", "consumer")
        for partition, offset, outcome, counted in (
            (0, 5, "committed", True),
            (0, 10, "aborted", False),
            (0, 15, "committed", True),
            (0, 20, "committed", True),
            (0, 25, "aborted", False),
            (0, 30, "committed", True),
            (0, 3, "committed", False),
            (1, 9, "aborted", False),
        )
    ]


def test_producer_ids_are_named_by_the_transaction_log() -> None:
    """A tombstone of an expired transactional id keeps the name, as the producer id is never reused."""
    entries = [("a", 1), ("b", 2), ("a", None), ("a", 9)]
    rows = [{"transactional_id": name, "producer_id": producer_id} for name, producer_id in entries]
    assert names_of(pa.Table.from_pylist(rows).to_batches()) == {1: "a", 2: "b", 9: "a"}
