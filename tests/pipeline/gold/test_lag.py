"""Committed offsets and lag match a naive reading of the log, however the log is split into batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline import segments
from tests.pipeline.commit_logs import LOGS, bronze, commit, final, golden, marker, silver
from tests.pipeline.segments import START_MS, write

from konvene.codec.batches import Record
from konvene.groups.offsets.committed import Offsets, replay
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.commits import committed, of_files
from konvene.pipeline.gold.lag import Compacted, Ends, StoredEnds, lag_rows
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.commits import OffsetCommitted, decode_group_record
from konvene.records.coordinator import GROUP_RECORDS, encode_record

MINUTE = 60_000
SCENARIOS = ("classic", "consumer", "share", "streams", "transactions")


def cut(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches(max_chunksize=size)


def lag(rows: list[dict[str, Any]], ends: Sequence[Any] = (), size: int = 1000) -> list[dict[str, Any]]:
    log_end = pa.Table.from_pylist(list(ends), schema=TABLES["log_end"].schema).to_batches()
    batches = list(lag_rows(cut(silver(rows), size), log_end, cut(bronze(rows), max(1, size - 3))))
    return [row for batch in batches for row in batch.to_pylist()]


def stretch(base: int, end: int, first_ms: int, last_ms: int, partition: int = 0) -> dict[str, Any]:
    return {
        "cluster": "c", "topic": "t", "partition": partition, "timestamp_ms": last_ms,
        "first_timestamp_ms": first_ms, "base_offset": base, "log_end_offset": end, "batches": 1,
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_committed_offsets_match_kafkas_final_description(scenario: str, size: int) -> None:
    """Covers committed, aborted and fenced transactions, tombstones, and plain commits among them."""
    found = {}
    for rows in golden(scenario).values():
        for row in committed(cut(silver(rows), size), cut(bronze(rows), size)).to_pylist():
            key = f"{row['group_id']}/{row['topic']}/{row['partition']}"
            found[key] = (row["committed_offset"], row["metadata"])
    assert found == final(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_committed_offsets_of_ingested_segments_match_kafkas_final_description(
    scenario: str, tmp_path: Path
) -> None:
    """From segments through bronze and silver files; transaction markers are in other files than commits."""
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / scenario], Local())
    found = {}
    for partition in (0, 1):
        names = ("offset_commit", "legacy_offset_commit", "coordinator_record")
        files = [file for name in names for file in warehouse.files(name, "__consumer_offsets", partition)]
        for row in committed(*of_files(warehouse.path, files)).to_pylist():
            key = f"{row['group_id']}/{row['topic']}/{row['partition']}"
            found[key] = (row["committed_offset"], row["metadata"])
    assert found == final(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_committed_offsets_match_the_brokers_replay(seed: int, tmp_path: Path) -> None:
    batches = segments.log(seed, 200)
    write(tmp_path / "logs", batches)
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, [tmp_path / "logs"], Local())
    files = [file for name in ("offset_commit", "coordinator_record") for file in warehouse.files(name)]
    rows = committed(*of_files(warehouse.path, files)).to_pylist()
    found = {(r["group_id"], r["topic"], r["partition"]): r["committed_offset"] for r in rows}
    groups: dict[str, Offsets] = {}
    for record in (decode_group_record(r.key, r.value) for batch in batches for r in batch):
        if isinstance(record, OffsetCommitted):
            replay(groups, record)
    assert found == {
        (group, topic, partition): committed_offset.offset
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        for partition, committed_offset in partitions.items()
    }


def test_legacy_commits_without_leader_epoch_are_read() -> None:
    """The legacy table lacks the leader epoch and the expiry; all else is alike."""
    old = silver([commit(0, 0, 3)]).drop_columns(["leader_epoch", "expire_timestamp"])
    (row,) = committed(old.to_batches()).to_pylist()
    assert (row["committed_offset"], row["leader_epoch"], row["expire_ms"]) == (3, -1, -1)


def test_tombstone_in_a_transaction_applies_at_once() -> None:
    """It deletes the committed offset and the pending one, as in Kafka's coordinator."""
    rows = [commit(0, 0, 3), commit(1, 0, 4, producer=7), commit(2, 0, None, producer=7)]
    rows.append(marker(3, 0, 7, "COMMIT"))
    for some in (rows[:3], rows):
        assert committed(cut(silver(some), 10), cut(bronze(some), 10)).num_rows == 0


def naive(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the `lag` rows without log ends by key and minute, computed record by record."""
    pending: dict[int, list[dict[str, Any]]] = {}
    keys: dict[str, dict[str, Any]] = {}
    found: dict[tuple[str, int], dict[str, Any]] = {}

    def apply(row: dict[str, Any], ms: int) -> None:
        key = keys.setdefault(row["key"], {"at": -1, "minute": -1, "life": 0, "rows": []})
        if row["offset"] < key["at"]:
            return
        key["at"] = row["offset"]
        if row["committed"] is None:
            key["life"] += 1
            return
        key["minute"] = max(key["minute"], ms // MINUTE)
        minute_row = found.get((row["key"], key["minute"]))
        if minute_row is None:
            before = key["rows"][-1] if key["rows"] else None
            minute_row = found[row["key"], key["minute"]] = {"commits": 0, "before": before}
            key["rows"].append(minute_row)
        minute_row |= {
            "offset": row["committed"],
            "ms": ms,
            "commits": minute_row["commits"] + 1,
            "life": key["life"],
        }

    for row in rows:
        if "control" in row:
            for commit_row in pending.pop(row["producer"], []):
                if row["control"] == "COMMIT":
                    apply(commit_row, row["ms"])
        elif row["producer"] >= 0:
            pending.setdefault(row["producer"], []).append(row)
        else:
            apply(row, row["ms"])
    return found


def random_log(seed: int) -> list[dict[str, Any]]:
    """Return random plain and transactional commits, tombstones and markers, with a jumping clock."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    offset, ms = rng.randrange(5), 1_000_000
    for _ in range(rng.randrange(5, 150)):
        offset += rng.choice((1, 1, 1, 4))
        ms += rng.choice((0, 500, 20_000, 70_000, -30_000))
        key = f"g{rng.randrange(2)}/t/{rng.randrange(3)}"
        what = rng.random()
        if what < 0.2:
            rows.append(marker(offset, ms, rng.randrange(3), rng.choice(("COMMIT", "COMMIT", "ABORT"))))
        elif what < 0.3:
            rows.append(commit(offset, ms, None, key))
        else:
            producer = rng.choice((-1, -1, 0, 1, 2))
            rows.append(commit(offset, ms, rng.randrange(100), key, producer))
    return rows


@pytest.mark.parametrize("seed", range(60))
def test_lag_rows_match_the_naive_reading_for_any_batch_size(seed: int) -> None:
    rows = random_log(seed)
    expected = {}
    for (key, minute), minute_row in naive(rows).items():
        before = minute_row["before"]
        same = before is not None and before["life"] == minute_row["life"]
        advanced = minute_row["offset"] - before["offset"] if same else None
        expected[key, minute * MINUTE] = (
            minute_row["offset"],
            minute_row["ms"],
            minute_row["commits"],
            advanced,
        )
    whole = lag(rows)
    found = {
        (f"{r['group_id']}/{r['topic']}/{r['partition']}", r["minute_ms"]): (
            r["committed_offset"], r["commit_ms"], r["commits"], r["advanced"]
        )
        for r in whole
    }  # fmt: skip
    assert found == expected
    assert len(whole) == len(found), "a minute has one row"
    for size in (1, 4, 13):
        assert lag(rows, size=size) == whole


@pytest.mark.parametrize("scenario", ["classic", "transactions"])
def test_built_lag_table_matches_the_naive_reading(scenario: str, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / scenario], Local())
    build(warehouse, Local())
    expected = {
        (key, minute * MINUTE): (minute_row["offset"], minute_row["ms"], minute_row["commits"])
        for rows in golden(scenario).values()
        for (key, minute), minute_row in naive(rows).items()
    }
    found = {
        (f"{r['group_id']}/{r['topic']}/{r['partition']}", r["minute_ms"]): (
            r["committed_offset"], r["commit_ms"], r["commits"]
        )
        for r in read.table(warehouse, "lag").to_pylist()
    }  # fmt: skip
    assert expected
    assert found == expected


def test_lag_is_measured_at_the_end_of_each_minute(tmp_path: Path) -> None:
    """One record a second, and every seven seconds a commit that is half a minute behind; both logs are
    segments."""
    length, behind = 400, 30
    records = [[Record(n, START_MS + 1000 * n, None, b"x")] for n in range(length)]
    write(tmp_path / "logs", records, topic="orders")
    batches = []
    for n in range(behind, length, 7):
        key, value = encode_record(segments.commit("g", "orders", 0, n - behind), GROUP_RECORDS)
        batches.append([Record(len(batches), START_MS + 1000 * n + 500, key, value)])
    write(tmp_path / "logs", batches)
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, [tmp_path / "logs"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "lag").to_pylist()
    assert len(rows) == length // 60 + 1
    for row in rows:
        log_end = min(length, (row["minute_ms"] + MINUTE - START_MS) // 1000)
        assert (row["log_end_offset"], row["lag"]) == (log_end, log_end - row["committed_offset"])
        age_ms = row["minute_ms"] + MINUTE - START_MS - 1000 * row["committed_offset"]
        assert age_ms - MINUTE < row["time_lag_ms"] <= age_ms
    evidence = {row["minute_ms"]: row["evidence"] for row in rows}
    assert [evidence[minute] for minute in sorted(evidence)] == ["observed"] * 6 + ["inferred"]


def test_without_topic_logs_only_commits_are_known() -> None:
    (row,) = lag([commit(0, 5 * MINUTE + 1, 10), commit(1, 5 * MINUTE + 2, 12)])
    assert row == {
        "cluster": "c", "group_id": "g", "topic": "t", "partition": 0, "minute_ms": 5 * MINUTE,
        "committed_offset": 12, "commit_ms": 5 * MINUTE + 2, "commits": 2, "advanced": None,
        "log_end_offset": None, "lag": None, "time_lag_ms": None, "evidence": "observed",
    }  # fmt: skip


def test_minutes_in_compacted_ranges_have_missing_evidence() -> None:
    """Compaction may have removed commits in the range and up to the end of the minute that it reaches
    into."""
    rows = [commit(3, 0, 1), commit(9, 60_000, 2), commit(10, 100_000, 3), commit(11, 120_000, 4)]
    for size in (1, 2, 10):
        batches = lag_rows(cut(silver(rows), size), (), (), [Compacted(0, 5, 0), Compacted(7, 9, 60_000)])
        found = [
            (r["minute_ms"], r["commits"], r["evidence"]) for batch in batches for r in batch.to_pylist()
        ]
        assert found == [(0, 1, "missing"), (60_000, 2, "missing"), (120_000, 1, "observed")]


def test_reset_has_a_negative_advance_and_a_tombstone_ends_the_series() -> None:
    rows = [
        commit(0, 0, 50),
        commit(1, 1 * MINUTE, 20),
        commit(2, 2 * MINUTE, None),
        commit(3, 3 * MINUTE, 20),
    ]
    assert [row["advanced"] for row in lag(rows)] == [None, -30, None]


def test_transactional_commit_counts_at_its_marker() -> None:
    rows = [commit(0, 0, 5, producer=7), marker(1, 3 * MINUTE, 7, "COMMIT")]
    assert [(row["minute_ms"], row["commit_ms"]) for row in lag(rows)] == [(3 * MINUTE, 3 * MINUTE)]
    assert lag(rows[:1]) == []
    assert lag([rows[0], marker(1, 3 * MINUTE, 7, "ABORT")]) == []


def ends_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["log_end_offset"], row["lag"], row["time_lag_ms"], row["evidence"]


def test_end_is_observed_if_the_next_stretch_begins_after_the_minute() -> None:
    ends = [stretch(0, 10, 1_000, 2_000), stretch(10, 30, 50_000, 50_000), stretch(30, 31, 90_000, 90_000)]
    (row,) = lag([commit(0, 55_000, 4)], ends)
    assert ends_of(row) == (30, 26, 58_000, "observed")
    (row,) = lag([commit(0, 55_000, 10)], ends)
    assert ends_of(row) == (30, 20, 10_000, "observed")
    (row,) = lag([commit(0, 55_000, 30)], ends)
    assert ends_of(row) == (30, 0, 0, "observed")


def test_end_within_or_after_the_last_stretch_is_inferred() -> None:
    ends = [stretch(0, 10, 1_000, 2_000), stretch(10, 30, 50_000, 200_000)]
    (row,) = lag([commit(0, 55_000, 4)], ends)
    assert ends_of(row) == (10, 6, 58_000, "inferred")
    (row,) = lag([commit(0, 55_000, 15)], ends)
    assert ends_of(row) == (10, 0, 0, "inferred"), "the commit is within the stretch as well"
    (row,) = lag([commit(0, 250_000, 15)], ends)
    assert ends_of(row) == (30, 15, 100_000, "inferred")


def test_an_age_within_a_stretch_of_more_than_a_minute_is_inferred() -> None:
    ends = [stretch(0, 10, 0, 100_000), stretch(10, 11, 110_000, 110_000), stretch(11, 12, 190_000, 190_000)]
    (row,) = lag([commit(0, 130_000, 4)], ends)
    assert ends_of(row) == (11, 7, 80_000, "inferred")


def test_before_the_first_stretch_the_log_is_empty_or_deleted() -> None:
    (row,) = lag([commit(0, 5_000, 0)], [stretch(0, 10, 90_000, 90_000)])
    assert ends_of(row) == (0, 0, 0, "observed")
    (row,) = lag([commit(0, 5_000, 700)], [stretch(800, 900, 90_000, 90_000)])
    assert ends_of(row) == (None, None, None, "missing")


def test_deleted_record_has_no_time_lag() -> None:
    """Retention deleted uncommitted records, so the oldest uncommitted record at that time is unknown."""
    ends = [stretch(800, 900, 10_000, 10_000), stretch(900, 901, 70_000, 70_000)]
    (row,) = lag([commit(0, 30_000, 700)], ends)
    assert ends_of(row) == (900, 200, None, "observed")


def test_offset_between_stretches_belongs_to_the_next_one() -> None:
    ends = [stretch(0, 10, 1_000, 1_000), stretch(20, 30, 5_000, 5_000), stretch(30, 31, 70_000, 70_000)]
    (row,) = lag([commit(0, 30_000, 12)], ends)
    assert ends_of(row) == (30, 18, 55_000, "observed")


def test_backward_producer_timestamps_do_not_shrink_the_log() -> None:
    ends = [stretch(0, 10, 50_000, 50_000), stretch(10, 20, 1_000, 1_000), stretch(20, 21, 80_000, 80_000)]
    (row,) = lag([commit(0, 30_000, 20)], ends)
    assert ends_of(row) == (20, 0, 0, "observed")


def test_repr_of_ends_counts_partitions() -> None:
    ends = [stretch(0, 10, 0, 0), stretch(0, 10, 0, 0, partition=1)]
    log_ends = Ends(pa.Table.from_pylist(ends, schema=TABLES["log_end"].schema).to_batches())
    assert repr(log_ends) == "<log ends of 2 partitions>"
    assert log_ends.of("t", 2) is None


def test_stored_ends_match_those_in_memory_and_are_evicted(tmp_path: Path) -> None:
    """Ends of a large cluster do not fit in memory; evicted ones are read again on demand."""
    for partition in range(3):
        grown = [[Record(n, START_MS + 70_000 * n, None, b"x")] for n in range(4)]
        write(tmp_path / "logs", grown, topic="orders", partition=partition)
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, [tmp_path / "logs"], Local())
    whole = Ends(read.batches(warehouse, "log_end"))
    stored = StoredEnds(warehouse.path, warehouse.files("log_end"), most=8)
    assert repr(stored) == "<log ends of 3 partitions, 0 stretches of 0>"
    for partition in (0, 1, 2, 0, 0, 1):
        expected, found = whole.of("orders", partition), stored.of("orders", partition)
        assert expected is not None and found is not None
        assert [column.tolist() for column in found] == [column.tolist() for column in expected]
    assert repr(stored) == "<log ends of 3 partitions, 8 stretches of 2>"
    assert stored.of("orders", 3) is None


def test_rows_have_the_tables_schema() -> None:
    (batch,) = lag_rows(cut(silver([commit(0, 0, 1)]), 10))
    assert batch.schema == TABLES["lag"].schema
    assert list(lag_rows([])) == []
