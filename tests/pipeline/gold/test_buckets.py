"""Gold does not depend on the number of buckets into which a log is divided."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.groups.history.logs import Batch, compacted, golden
from tests.groups.history.walking import Walk
from tests.groups.history.writing import Writer
from tests.pipeline.reduce.reading import LOGS_OF_GROUPS, Rows, named, names_of, reduced
from tests.pipeline.segments import LOGS, all_files, cleaned, log, write
from tests.pipeline.streaming import GOLD, built_in_steps, sums

from konvene.pipeline.engine import Local, Processes
from konvene.pipeline.gold import build as builder
from konvene.pipeline.gold.buckets import MOST, commit_buckets, group_buckets, number
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.transitions import Observer, Replay
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.coordinator import GROUP_RECORDS, encode_record


def sorted_rows(warehouse: Warehouse) -> dict[str, list[str]]:
    return {table: sorted(map(repr, read.table(warehouse, table).to_pylist())) for table in GOLD}


def divided(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(builder, "number", lambda rows, rows_per_bucket: count)


def assert_same_rows(monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse, counts: Iterable[int]) -> None:
    """Build gold with these numbers of buckets, and compare its rows with those of one bucket."""
    build(warehouse, Local())
    whole, files = sorted_rows(warehouse), all_files(warehouse)
    for count in counts:
        divided(monkeypatch, count)
        assert build(warehouse, Local()).tasks >= count
        assert sorted_rows(warehouse) == whole, count
    divided(monkeypatch, 1)
    build(warehouse, Local())
    build(warehouse, Local())
    assert files <= all_files(warehouse)
    assert not any(file.family for table in GOLD for file in warehouse.files(table))


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_golden_logs_have_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / name], Local())
    assert_same_rows(monkeypatch, warehouse, (2, 8))


@pytest.mark.parametrize("seed", range(4))
def test_compacted_logs_have_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The history is incomplete, complete and, after lost batches, incomplete again."""
    batches = log(seed, 160, groups=6)
    chance = random.Random(seed)
    left = cleaned(batches, batches[chance.randrange(20, 80)][0].offset)
    for at in chance.sample(range(80, 160), 3):
        left[at] = []
    write(tmp_path / "logs", left, cuts=[60, 110], whole=batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    assert_same_rows(monkeypatch, warehouse, (2, 4))


@pytest.mark.parametrize("seed", range(4))
def test_unreadable_records_have_the_same_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """An unreadable record of one group makes the history of all groups incomplete."""
    batches = log(seed, 120, groups=6)
    of_groups = [
        (n, i) for n, batch in enumerate(batches) for i, r in enumerate(batch) if is_of_groups(r.key)
    ]
    for n, i in random.Random(seed).sample(of_groups, 4):
        record = batches[n][i]
        batches[n][i] = record._replace(value=b"\0\x7f" if i % 2 else (record.value or b"\0\3")[:9])
    write(tmp_path / "logs", batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    assert read.table(warehouse, "quarantine").num_rows
    assert_same_rows(monkeypatch, warehouse, (4,))


def is_of_groups(key: bytes | None) -> bool:
    return key is not None and key[:2] == b"\0\2"


def test_engines_write_the_same_files_of_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divided(monkeypatch, 4)
    found = []
    for n, engine in enumerate((Local(), Processes(2))):
        warehouse = Warehouse(tmp_path / str(n))
        ingest(warehouse, [LOGS / "consumer"], Local())
        build(warehouse, engine)
        found.append(sums(warehouse))
    assert found[0] == found[1]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_buckets_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool) -> None:
    """Steps in which the number of buckets grows build the files of one build."""
    batches = log(6, 200)
    left = cleaned(batches, batches[120][0].offset) if is_compacted else batches
    write(tmp_path / "logs", left, cuts=[60, 150], whole=batches)
    monkeypatch.setattr(builder, "GROUP_RECORDS", 60)
    monkeypatch.setattr(builder, "COMMITS", 200)
    in_steps = built_in_steps(tmp_path / "w", tmp_path / "logs", 60)
    at_once = Warehouse(tmp_path / "w2")
    ingest(at_once, [tmp_path / "logs"], Local())
    build(at_once, Local())
    whole = sums(at_once)
    for table in ("rebalance", "rebalance_member", "ownership", "unavailability", "group_health"):
        assert sums(in_steps)[table] == whole[table], table
    for table in ("rebalance", "lag"):
        assert {file.family for file in at_once.files(table)} >= {"0of2" if is_compacted else "0of4"}


def reduced_by_bucket(log: Sequence[Batch], count: int, names: dict[str, str]) -> Rows:
    """Return the rows of a log, reduced bucket by bucket."""
    observer = Observer(frozenset())
    for batch in log:
        observer.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            if entry.record is not None:
                observer.take(entry.offset, 0, encode_record(entry.record, GROUP_RECORDS)[0], None)
    found: Rows = {}
    for index in range(count):
        reducer = PartitionReducer("c", 0, (), names, some_groups=True)
        replay, ends = Replay(observer.found, reducer), -1
        for batch in log:
            mine = [entry for entry in batch.entries if bucket_of(entry.record, count) == index]
            if mine:
                replay.before_batch(batch.base_offset, ends)
                ends = batch.last_offset
                reducer.batch(batch.base_offset, ends, ends - batch.base_offset + 1)
            for entry in mine:
                replay.before_record(entry.offset)
                reducer.take_record(entry.offset, entry.timestamp_ms, entry.record)
        replay.finish(ends)
        reducer.finish()
        for table, rows in named(reducer.drain()).items():
            found.setdefault(table, []).extend(rows)
    return found


def bucket_of(record: Any, count: int) -> int:
    if record is None:
        return 0
    group = getattr(record.key, "group_id", None) or getattr(record.key, "group", "")
    return int(group_buckets(pa.array([group]), count)[0])


def assert_same_reduction(log: Sequence[Batch], names: dict[str, str]) -> None:
    whole = {table: sorted(map(repr, rows)) for table, rows in reduced(log, 0, (), names).items()}
    for count in (2, 8):
        rows = reduced_by_bucket(log, count, names)
        assert {table: sorted(map(repr, some)) for table, some in rows.items()} == whole


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams"])
def test_compacted_prefixes_of_golden_logs_are_reduced_alike(name: str) -> None:
    for whole in golden(name).values():
        for end in range(0, len(whole) + 1, max(1, len(whole) // 6)):
            assert_same_reduction(compacted(whole, 0, end), names_of(name))


@pytest.mark.parametrize("seed", range(6))
def test_random_logs_are_reduced_alike(seed: int) -> None:
    """Logs of classic, consumer and streams groups, whole, compacted, and with lost batches."""
    writer, walk, chance = Writer(seed), Walk(seed), Random(seed)
    writer.write(120)
    walk.walk(60)
    for whole in (writer.log, walk.log):
        begin = chance.randrange(len(whole))
        end = chance.randint(begin, len(whole))
        lost = whole[:begin] + whole[end:]
        for some in (whole, compacted(whole, 0, end), compacted(whole, begin, end), lost):
            assert_same_reduction(some, {})


def test_number_of_buckets_is_a_power_of_two() -> None:
    assert [number(rows, 100) for rows in (0, 100, 101, 200, 201, 500)] == [1, 1, 2, 2, 4, 8]
    assert number(10**9, 100) == MOST


def test_buckets_of_a_hash_are_even() -> None:
    groups = pa.array([f"group-{n}" for n in range(4000)])
    topics = pa.array(["orders"] * 4000)
    partitions = pa.array(np.arange(4000) % 12)
    for found in (group_buckets(groups, 8), commit_buckets(groups, topics, partitions, 8)):
        assert np.bincount(found, minlength=8).min() > 400
    one_group = commit_buckets(pa.array(["g"] * 240), pa.array(["t"] * 240), pa.array(np.arange(240)), 4)
    assert np.bincount(one_group).tolist() == [60] * 4
    assert group_buckets(pa.array([None, ""]), 4).tolist() == [0, 0]
