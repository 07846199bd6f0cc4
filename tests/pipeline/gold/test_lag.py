"""Committed offsets and lag are what a plain reading of the log says, however the log is cut into batches."""

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
from konvene.pipeline.gold.lag import Ends, StoredEnds, lag_rows
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
    made = list(lag_rows(cut(silver(rows), size), log_end, cut(bronze(rows), max(1, size - 3))))
    return [row for batch in made for row in batch.to_pylist()]


def stretch(base: int, end: int, first_ms: int, last_ms: int, partition: int = 0) -> dict[str, Any]:
    return {
        "cluster": "c", "topic": "t", "partition": partition, "timestamp_ms": last_ms,
        "first_timestamp_ms": first_ms, "base_offset": base, "log_end_offset": end, "batches": 1,
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kafkas_logs_come_to_the_offsets_that_kafka_named_in_the_end(scenario: str, size: int) -> None:
    """Transactions that committed, aborted or were fenced, tombstones and plain commits between them."""
    found = {}
    for rows in golden(scenario).values():
        for row in committed(cut(silver(rows), size), cut(bronze(rows), size)).to_pylist():
            key = f"{row['group_id']}/{row['topic']}/{row['partition']}"
            found[key] = (row["committed_offset"], row["metadata"])
    assert found == final(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_so_they_do_from_kafkas_segments_to_the_end(scenario: str, tmp_path: Path) -> None:
    """Bytes, bronze and silver, files and back: markers stand in other files than commits."""
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
def test_committed_offsets_are_those_that_the_brokers_own_replay_comes_to(seed: int, tmp_path: Path) -> None:
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
        (group, topic, partition): told.offset
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        for partition, told in partitions.items()
    }


def test_commits_of_before_2013_count_as_well() -> None:
    """Their table lacks the leader epoch; everything else is alike."""
    old = silver([commit(0, 0, 3)]).drop_columns(["leader_epoch", "expire_timestamp"])
    (row,) = committed(old.to_batches()).to_pylist()
    assert (row["committed_offset"], row["leader_epoch"], row["expire_ms"]) == (3, -1, -1)


def test_a_tombstone_does_not_wait_for_a_transaction() -> None:
    """It ends what was committed before and what is open; Kafka's coordinator reads it so."""
    rows = [commit(0, 0, 3), commit(1, 0, 4, producer=7), commit(2, 0, None, producer=7)]
    rows.append(marker(3, 0, 7, "COMMIT"))
    for some in (rows[:3], rows):
        assert committed(cut(silver(some), 10), cut(bronze(some), 10)).num_rows == 0


def naive(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of `lag` without ends, by key and minute: record by record."""
    waiting: dict[int, list[dict[str, Any]]] = {}
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
        told = found.get((row["key"], key["minute"]))
        if told is None:
            before = key["rows"][-1] if key["rows"] else None
            told = found[row["key"], key["minute"]] = {"commits": 0, "before": before}
            key["rows"].append(told)
        told |= {"offset": row["committed"], "ms": ms, "commits": told["commits"] + 1, "life": key["life"]}

    for row in rows:
        if "control" in row:
            for one in waiting.pop(row["producer"], []):
                if row["control"] == "COMMIT":
                    apply(one, row["ms"])
        elif row["producer"] >= 0:
            waiting.setdefault(row["producer"], []).append(row)
        else:
            apply(row, row["ms"])
    return found


def a_log(seed: int) -> list[dict[str, Any]]:
    """Plain and transactional commits, tombstones, markers; clocks that jump back and forth a little."""
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
def test_rows_are_those_of_a_plain_reading_however_the_log_is_cut(seed: int) -> None:
    rows = a_log(seed)
    expected = {}
    for (key, minute), told in naive(rows).items():
        before = told["before"]
        same = before is not None and before["life"] == told["life"]
        advanced = told["offset"] - before["offset"] if same else None
        expected[key, minute * MINUTE] = (told["offset"], told["ms"], told["commits"], advanced)
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
def test_a_build_makes_the_rows_of_a_plain_reading(scenario: str, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / scenario], Local())
    build(warehouse, Local())
    expected = {
        (key, minute * MINUTE): (told["offset"], told["ms"], told["commits"])
        for rows in golden(scenario).values()
        for (key, minute), told in naive(rows).items()
    }
    found = {
        (f"{r['group_id']}/{r['topic']}/{r['partition']}", r["minute_ms"]): (
            r["committed_offset"], r["commit_ms"], r["commits"]
        )
        for r in read.table(warehouse, "lag").to_pylist()
    }  # fmt: skip
    assert expected
    assert found == expected


def test_beside_a_users_log_lag_is_what_it_was_at_the_end_of_each_minute(tmp_path: Path) -> None:
    """A record a second, and a commit every seven that is half a minute behind; both logs as segments."""
    length, behind = 400, 30
    records = [[Record(n, START_MS + 1000 * n, None, b"x")] for n in range(length)]
    write(tmp_path / "logs", records, topic="orders")
    made = []
    for n in range(behind, length, 7):
        key, value = encode_record(segments.commit("g", "orders", 0, n - behind), GROUP_RECORDS)
        made.append([Record(len(made), START_MS + 1000 * n + 500, key, value)])
    write(tmp_path / "logs", made)
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, [tmp_path / "logs"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "lag").to_pylist()
    assert len(rows) == length // 60 + 1
    for row in rows:
        grown = min(length, (row["minute_ms"] + MINUTE - START_MS) // 1000)
        assert (row["log_end_offset"], row["lag"]) == (grown, grown - row["committed_offset"])
        age_ms = row["minute_ms"] + MINUTE - START_MS - 1000 * row["committed_offset"]
        assert age_ms - MINUTE < row["time_lag_ms"] <= age_ms
    told = {row["minute_ms"]: row["evidence"] for row in rows}
    assert [told[minute] for minute in sorted(told)] == ["observed"] * 6 + ["inferred"]


def test_without_logs_of_users_topics_only_the_commits_are_known() -> None:
    (row,) = lag([commit(0, 5 * MINUTE + 1, 10), commit(1, 5 * MINUTE + 2, 12)])
    assert row == {
        "cluster": "c", "group_id": "g", "topic": "t", "partition": 0, "minute_ms": 5 * MINUTE,
        "committed_offset": 12, "commit_ms": 5 * MINUTE + 2, "commits": 2, "advanced": None,
        "log_end_offset": None, "lag": None, "time_lag_ms": None, "evidence": "observed",
    }  # fmt: skip


def test_where_a_cleaner_was_rows_are_not_whole() -> None:
    """Commits may have gone beside those that are left, up to the end of the minute that they reach into."""
    rows = [commit(3, 0, 1), commit(9, 60_000, 2), commit(10, 100_000, 3), commit(11, 120_000, 4)]
    for size in (1, 2, 10):
        made = lag_rows(cut(silver(rows), size), (), (), [(0, 5), (7, 9)])
        told = [(r["minute_ms"], r["commits"], r["evidence"]) for batch in made for r in batch.to_pylist()]
        assert told == [(0, 1, "missing"), (60_000, 2, "missing"), (120_000, 1, "observed")]


def test_a_reset_moves_backwards_and_a_tombstone_ends_the_story() -> None:
    rows = [
        commit(0, 0, 50),
        commit(1, 1 * MINUTE, 20),
        commit(2, 2 * MINUTE, None),
        commit(3, 3 * MINUTE, 20),
    ]
    assert [row["advanced"] for row in lag(rows)] == [None, -30, None]


def test_a_commit_of_a_transaction_counts_when_its_marker_comes() -> None:
    rows = [commit(0, 0, 5, producer=7), marker(1, 3 * MINUTE, 7, "COMMIT")]
    assert [(row["minute_ms"], row["commit_ms"]) for row in lag(rows)] == [(3 * MINUTE, 3 * MINUTE)]
    assert lag(rows[:1]) == []
    assert lag([rows[0], marker(1, 3 * MINUTE, 7, "ABORT")]) == []


def ends_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["log_end_offset"], row["lag"], row["time_lag_ms"], row["evidence"]


def test_an_end_is_observed_where_the_next_stretch_begins_after_the_minute() -> None:
    ends = [stretch(0, 10, 1_000, 2_000), stretch(10, 30, 50_000, 50_000), stretch(30, 31, 90_000, 90_000)]
    (row,) = lag([commit(0, 55_000, 4)], ends)
    assert ends_of(row) == (30, 26, 58_000, "observed")
    (row,) = lag([commit(0, 55_000, 10)], ends)
    assert ends_of(row) == (30, 20, 10_000, "observed")
    (row,) = lag([commit(0, 55_000, 30)], ends)
    assert ends_of(row) == (30, 0, 0, "observed")


def test_an_end_within_a_stretch_or_behind_the_last_one_is_inferred() -> None:
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


def test_before_the_first_stretch_a_log_is_empty_or_lost() -> None:
    (row,) = lag([commit(0, 5_000, 0)], [stretch(0, 10, 90_000, 90_000)])
    assert ends_of(row) == (0, 0, 0, "observed")
    (row,) = lag([commit(0, 5_000, 700)], [stretch(800, 900, 90_000, 90_000)])
    assert ends_of(row) == (None, None, None, "missing")


def test_a_record_that_is_gone_has_no_age() -> None:
    """Retention took what was not committed; of what is left nobody knows whether it was the oldest then."""
    ends = [stretch(800, 900, 10_000, 10_000), stretch(900, 901, 70_000, 70_000)]
    (row,) = lag([commit(0, 30_000, 700)], ends)
    assert ends_of(row) == (900, 200, None, "observed")


def test_offsets_that_no_stretch_has_are_those_of_the_next_one() -> None:
    ends = [stretch(0, 10, 1_000, 1_000), stretch(20, 30, 5_000, 5_000), stretch(30, 31, 70_000, 70_000)]
    (row,) = lag([commit(0, 30_000, 12)], ends)
    assert ends_of(row) == (30, 18, 55_000, "observed")


def test_times_of_producers_that_run_backwards_do_not_shrink_a_log() -> None:
    ends = [stretch(0, 10, 50_000, 50_000), stretch(10, 20, 1_000, 1_000), stretch(20, 21, 80_000, 80_000)]
    (row,) = lag([commit(0, 30_000, 20)], ends)
    assert ends_of(row) == (20, 0, 0, "observed")


def test_ends_tell_how_many_partitions_they_know() -> None:
    ends = [stretch(0, 10, 0, 0), stretch(0, 10, 0, 0, partition=1)]
    made = Ends(pa.Table.from_pylist(ends, schema=TABLES["log_end"].schema).to_batches())
    assert repr(made) == "<log ends of 2 partitions>"
    assert made.of("t", 2) is None


def test_ends_in_files_are_those_in_memory_and_are_forgotten_when_they_are_many(tmp_path: Path) -> None:
    """Of a large cluster not all ends fit; what is asked for again is read again."""
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
