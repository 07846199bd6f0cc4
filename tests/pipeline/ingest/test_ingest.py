"""Ingest stores each record of the logs once, for whatever copies, in whatever order and state they are
read."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.segments import (
    LOGS,
    OFFSETS,
    Log,
    Record,
    all_files,
    cleaned,
    expected,
    log,
    records_of,
    rows_of,
    sums_of,
    write,
)

from konvene.codec.batches import read_header
from konvene.codec.uuid import Uuid
from konvene.pipeline.engine import Local
from konvene.pipeline.ingest import offset_spans, splits
from konvene.pipeline.ingest.ingest import Report, WrongTables, ingest
from konvene.pipeline.progress import Progress
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.audit import Cause, RebalanceKey, RebalanceValue
from konvene.records.cluster_log import encode_cluster_record
from konvene.records.coordinator import AUDIT_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated
from konvene.records.metadata import PartitionRecord, TopicRecord


def ingest_local(warehouse: Warehouse, *paths: Path, **more: Any) -> Report:
    return ingest(warehouse, paths, Local(), **more)


def spans(warehouse: Warehouse) -> list[tuple[int, int, str, int]]:
    rows = read.table(warehouse, "log_span").to_pylist()
    return [(r["first_offset"], r["last_offset"], r["kind"], r["records"]) for r in rows]


def test_ingest_stores_every_record_of_a_log(tmp_path: Path) -> None:
    batches = log(1, 50)
    write(tmp_path / "logs", batches, cuts=[10, 30])
    warehouse = Warehouse(tmp_path / "w")
    report = ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(batches)
    last = batches[-1][-1].offset
    assert spans(warehouse) == [(0, last, "whole", last + 1)]
    assert report.tasks == 3 and report.number == 1 and report.left == ()
    assert report.bytes_read == sum(p.stat().st_size for p in (tmp_path / "logs").rglob("*.log"))
    (run,) = read.table(warehouse, "pipeline_run").to_pylist()
    assert (run["step"], run["rows"], run["engine"]) == ("ingest", report.rows, "local")


def test_silver_tables_match_bronze_families(tmp_path: Path) -> None:
    """Each record is in one family and in one silver table, at its offset."""
    batches = log(1, 50)
    write(tmp_path / "logs", batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    kinds = {r.offset: int.from_bytes((r.key or b"")[:2], "big") for batch in batches for r in batch}
    for family, table, kind in (("commits", "offset_commit", 1), ("groups", "group_metadata", 2)):
        offsets = [offset for offset, k in kinds.items() if k == kind]
        bronze = list(read.batches(warehouse, "coordinator_record", ["offset"], family=family))
        assert [o for b in bronze for o in b.column(0).to_pylist()] == offsets
        assert read.table(warehouse, table).column("offset").to_pylist() == offsets
    generations = read.table(warehouse, "group_metadata", ["group", "generation"]).to_pylist()
    assert generations[0] == {"group": generations[0]["group"], "generation": 1}


# idempotence --------------------------------------------------------------------------------------


def test_second_ingest_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "logs", log(1, 50), cuts=[20])
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    before, files = sums_of(warehouse), all_files(warehouse)
    report = ingest_local(warehouse, tmp_path / "logs")
    assert (report.number, report.tasks, report.files) == (None, 0, 0)
    assert (sums_of(warehouse), all_files(warehouse)) == (before, files)


def test_a_copy_of_the_same_log_adds_nothing(tmp_path: Path) -> None:
    """In the same run or a later one, under any path, with any segment boundaries."""
    batches = log(1, 50)
    write(tmp_path / "a", batches, cuts=[20])
    write(tmp_path / "b", batches, cuts=[5, 31])
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    alone, together = Warehouse(tmp_path / "w1"), Warehouse(tmp_path / "w2")
    ingest_local(alone, tmp_path / "a")
    ingest_local(together, tmp_path / "c", tmp_path / "b", tmp_path / "a", tmp_path / "a")
    assert records_of(together) == expected(batches)
    assert sums_of(alone) == sums_of(together)
    for other in ("b", "c"):
        assert ingest_local(alone, tmp_path / other).number is None


@pytest.mark.parametrize("seed", range(4))
def test_ingests_of_a_growing_log_store_the_whole_log(tmp_path: Path, seed: int) -> None:
    """It is read at arbitrary moments, also in the middle of a batch, with new segments in between."""
    batches = log(seed, 60)
    (path,) = write(tmp_path / "whole", batches)
    data, chance = path.read_bytes(), random.Random(seed)
    at_once, bit_by_bit = Warehouse(tmp_path / "w1"), Warehouse(tmp_path / "w2")
    ingest_local(at_once, tmp_path / "whole")
    growing = tmp_path / "growing" / f"{OFFSETS}-0" / path.name
    growing.parent.mkdir(parents=True)
    for size in [*sorted(chance.sample(range(1, len(data)), 7)), len(data)]:
        growing.write_bytes(data[:size])
        ingest_local(bit_by_bit, tmp_path / "growing")
    assert rows_of(bit_by_bit) == rows_of(at_once)
    assert spans(bit_by_bit) == spans(at_once)


def test_log_that_grows_and_rolls_during_ingest(tmp_path: Path) -> None:
    """Data written after planning is left to the next run; none of it is lost or read partially."""
    batches = log(4, 60)
    write(tmp_path / "whole", batches, cuts=[30])
    write(tmp_path / "logs", batches[:20])
    first, second = (tmp_path / "whole" / f"{OFFSETS}-0" / f"{b[0].offset:020}.log" for b in batches[::30])
    here = tmp_path / "logs" / f"{OFFSETS}-0"

    class Interleaved(Local):
        def run(self, work: Any, tasks: Sequence[Any]) -> Iterator[Any]:
            with (here / first.name).open("ab") as file:
                file.write(first.read_bytes()[file.tell() :])
            (here / second.name).write_bytes(second.read_bytes()[:-5])
            return super().run(work, tasks)

    warehouse = Warehouse(tmp_path / "w")
    assert ingest(warehouse, [tmp_path / "logs"], Interleaved()).left == ()
    assert records_of(warehouse) == expected(batches[:20])
    ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(batches[:-1])
    (here / second.name).write_bytes(second.read_bytes())
    ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(batches)
    at_once = Warehouse(tmp_path / "w2")
    ingest_local(at_once, tmp_path / "whole")
    assert rows_of(warehouse) == rows_of(at_once)


def test_ingested_records_survive_compaction_and_retention(tmp_path: Path) -> None:
    """The log is cleaned and truncated between two runs, so bronze is the only full history."""
    batches = log(1, 60)
    write(tmp_path / "logs", batches[:40], cuts=[20])
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    shutil.rmtree(tmp_path / "logs")
    left = cleaned(batches, batches[30][0].offset)
    assert sum(map(len, left)) < sum(map(len, batches))
    write(tmp_path / "logs", left, cuts=[20], whole=batches)
    (tmp_path / "logs" / f"{OFFSETS}-0" / f"{0:020}.log").unlink()
    ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(batches)
    assert [kind for _, _, kind, _ in spans(warehouse)] == ["whole"]
    before = sums_of(warehouse)
    (tmp_path / "logs" / f"{OFFSETS}-0" / f"{batches[20][0].offset:020}.log").write_bytes(b"")
    assert ingest_local(warehouse, tmp_path / "logs").number is None
    assert sums_of(warehouse) == before


def test_missing_offsets_are_filled_from_a_later_copy(tmp_path: Path) -> None:
    """The log's beginning was deleted, then a range between two runs; finally an old backup is ingested."""
    batches = log(1, 60)
    first, second, third = batches[10][0].offset, batches[20][0].offset, batches[40][0].offset
    end = batches[-1][-1].offset
    warehouse = Warehouse(tmp_path / "w")
    write(tmp_path / "now", batches[10:20])
    ingest_local(warehouse, tmp_path / "now")
    assert spans(warehouse) == [(0, first - 1, "missing", 0), (first, second - 1, "whole", second - first)]
    write(tmp_path / "later", batches[40:])
    ingest_local(warehouse, tmp_path / "later")
    assert spans(warehouse)[2:] == [
        (second, third - 1, "missing", 0),
        (third, end, "whole", end - third + 1),
    ]
    write(tmp_path / "backup", batches, cuts=[15, 33])
    ingest_local(warehouse, tmp_path / "backup")
    assert records_of(warehouse) == expected(batches)
    assert spans(warehouse) == [(0, end, "whole", end + 1)]
    assert ingest_local(warehouse, tmp_path).number is None


# compacted copies ---------------------------------------------------------------------------------


@pytest.fixture(params=[offset_spans.WORTH, 10])
def worth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """With the default minimum, complete ranges between gaps get no span in a small log; with 10 they do."""
    monkeypatch.setattr(offset_spans, "WORTH", request.param)
    value: int = request.param
    return value


def compacted(batches: Log, chance: random.Random, end: int) -> Log:
    """Return the log with random records removed below an offset, as a cleaner may leave it."""
    return [[r for r in batch if r.offset >= end or chance.random() < 0.6] for batch in batches]


@pytest.mark.parametrize("seed", range(6))
def test_copies_together_give_the_union_of_their_records(tmp_path: Path, seed: int, worth: int) -> None:
    """Three replicas with different compaction and segments, ingested at once or one after another."""
    chance = random.Random(seed)
    batches = log(seed, 80)
    end = batches[-1][-1].offset
    paths, present = [], set[int]()
    for name in "abc":
        left = compacted(batches, chance, chance.randint(end // 2, end))
        present |= {r.offset for batch in left for r in batch}
        cuts = sorted(chance.sample(range(1, 80), 3))
        write(tmp_path / name, left, cuts=cuts, whole=batches)
        paths.append(tmp_path / name)
    union = [[r for r in batch if r.offset in present] for batch in batches]
    at_once, one_by_one = Warehouse(tmp_path / "w1"), Warehouse(tmp_path / "w2")
    ingest_local(at_once, *paths, task_bytes=1 << 12)
    chance.shuffle(paths)
    for path in paths:
        ingest_local(one_by_one, path)
    for warehouse in (at_once, one_by_one):
        assert records_of(warehouse) == expected(union)
        assert sum(records for *_, records in spans(warehouse)) == len(present)
        before = sums_of(warehouse)
        for path in paths:
            assert ingest_local(warehouse, path).files == 0
        assert ingest_local(warehouse, *paths).files == 0
        assert sums_of(warehouse) == before
    silver = [read.table(w, "offset_commit").sort_by("offset") for w in (at_once, one_by_one)]
    columns = [name for name in silver[0].column_names if name != "batch_base_offset"]
    assert silver[0].select(columns).equals(silver[1].select(columns))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_copy_replaced_while_it_fills_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The parts that were read before stay; the next run reads the remaining ones, once."""
    monkeypatch.setattr(splits, "_AHEAD", 500)
    batches = log(3, 90)
    write(tmp_path / "a", compacted(batches, random.Random(1), 1 << 40), cuts=[40], whole=batches)
    (path,) = write(tmp_path / "b", batches)
    steps: list[int] = []

    class Interleaved(Local):
        def run(self, work: Any, tasks: Sequence[Any]) -> Iterator[Any]:
            steps.append(len(tasks))
            for n, task in enumerate(tasks):
                if len(steps) == 2 and n == which:
                    draft = path.with_suffix(".swap")
                    draft.write_bytes(path.read_bytes())
                    draft.rename(path)
                yield work(task)

    warehouse = Warehouse(tmp_path / "w")
    report = ingest(warehouse, [tmp_path / "a", tmp_path / "b"], Interleaved(), task_bytes=4000)
    assert steps[1] > which and len(report.left) == steps[1] - which
    offsets = [offset for offset, *_ in records_of(warehouse)]
    assert offsets == sorted(set(offsets)) and len(offsets) < len(expected(batches))
    ingest_local(warehouse, tmp_path / "a", tmp_path / "b")
    assert records_of(warehouse) == expected(batches)
    assert [kind for _, _, kind, _ in spans(warehouse)] == ["whole"]


def test_compacted_log_has_compacted_spans(tmp_path: Path) -> None:
    batches = log(1, 60)
    end = batches[40][0].offset
    left = cleaned(batches, end)
    write(tmp_path / "logs", left, whole=batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(left)
    found_spans = spans(warehouse)
    assert {kind for _, _, kind, _ in found_spans} <= {"compacted", "missing"}
    assert sum(records for *_, records in found_spans) == sum(map(len, left))
    assert found_spans[-1][1] == batches[-1][-1].offset


# damage -------------------------------------------------------------------------------------------


def test_damage_is_quarantined_and_filled_from_another_copy(tmp_path: Path) -> None:
    """One batch has a wrong checksum and one is no batch; all others are stored, and the quarantine names
    the reasons."""
    batches = log(1, 40)
    (path,) = write(tmp_path / "a", batches)
    data, at, positions = bytearray(path.read_bytes()), 0, []
    while at < len(data):
        positions.append(at)
        at += read_header(data, at).size
    data[positions[5] + 70] ^= 1
    data[positions[20] + 16] = 77
    path.write_bytes(data)
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "a")
    left = [batch for n, batch in enumerate(batches) if n not in (5, 20)]
    assert records_of(warehouse) == expected(left)
    rows = read.table(warehouse, "quarantine").to_pylist()
    assert [(r["offset"], r["file_position"]) for r in rows] == [
        (batches[5][0].offset, positions[5]),
        (batches[20][0].offset, positions[20]),
    ]
    assert "checksum" in rows[0]["reason"] and "magic 77" in rows[1]["reason"]
    assert rows[0]["bytes"] == bytes(data[positions[5] : positions[6]])[:1024]
    write(tmp_path / "b", batches)
    ingest_local(warehouse, tmp_path / "b", tmp_path / "a")
    assert records_of(warehouse) == expected(batches)
    assert [kind for _, _, kind, _ in spans(warehouse)] == ["whole"]
    assert read.table(warehouse, "quarantine").num_rows == 2


def test_unknown_record_types_stay_in_bronze(tmp_path: Path) -> None:
    batches = [[Record(0, 1, b"\x7f\xffsomething", b"\0\0new")], [Record(1, 1, None, b"no key")]]
    write(tmp_path / "logs", batches)
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    assert records_of(warehouse) == expected(batches)
    assert set(warehouse.tables()) == {"coordinator_record", "log_span", "pipeline_run"}
    assert read.table(warehouse, "coordinator_record").column("key_type").to_pylist() == [0x7FFF, None]


def test_segment_replaced_after_planning_is_left_to_the_next_run(tmp_path: Path) -> None:
    """The cleaner replaces it between planning and reading, so planned positions are invalid."""
    batches = log(1, 40)
    first, second = write(tmp_path / "logs", batches, cuts=[20])

    class Interleaved(Local):
        def run(self, work: Any, tasks: Sequence[Any]) -> Iterator[Any]:
            draft = first.with_suffix(".swap")
            draft.write_bytes(first.read_bytes())
            draft.rename(first)
            second.rename(second.with_suffix(".deleted"))
            return super().run(work, tasks)

    warehouse = Warehouse(tmp_path / "w")
    report = ingest(warehouse, [tmp_path / "logs"], Interleaved())
    assert (report.files, len(report.left)) == (0, 2)
    assert "changed while it was read" in report.left[0]
    second.with_suffix(".deleted").rename(second)
    assert ingest_local(warehouse, tmp_path / "logs").left == ()
    assert records_of(warehouse) == expected(batches)


def test_diverging_logs_of_one_partition_are_not_mixed(tmp_path: Path) -> None:
    """Two clusters without cluster ids: the second log is left out, with a message."""
    write(tmp_path / "a", log(1, 10))
    write(tmp_path / "b", log(2, 30))
    warehouse = Warehouse(tmp_path / "w")
    (message,) = ingest_local(warehouse, tmp_path / "a", tmp_path / "b").left
    assert "is not a copy of" in message and "offset 0 differs" in message
    assert records_of(warehouse) == expected(log(1, 10))


# other logs ---------------------------------------------------------------------------------------


def test_audit_records_fill_audit_event(tmp_path: Path) -> None:
    values = [
        RebalanceValue(
            group_type="classic", epoch=n, state="Stable", partition=0, base_offset=n, last_offset=n,
            causes=(Cause(kind="member-joined", at_ms=5, member_id="m", reason="hello"),),
        )
        for n in range(5)
    ]  # fmt: skip
    batches = []
    for n, value in enumerate(values):
        key, data = encode_record(Coordinated(RebalanceKey(group="g"), value), AUDIT_RECORDS)
        batches.append([Record(n, 1000 + n, key, data)])
    batches.append([Record(5, 1005, b"\0\x09new", b"\0\0what")])
    batches.append([Record(6, 1006, key, b"\0\x63of a later version")])
    (path,) = write(tmp_path / "logs", batches, topic="__konvene_audit")
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    rows = read.table(warehouse, "audit_event").to_pylist()
    assert [(r["audit_offset"], r["timestamp_ms"], r["group_id"], r["epoch"]) for r in rows] == [
        (n, 1000 + n, "g", n) for n in range(5)
    ]
    (cause,) = rows[0]["causes"]
    assert (cause["kind"], cause["member_id"], cause["reason"]) == ("member-joined", "m", "hello")
    (bad,) = read.table(warehouse, "quarantine").to_pylist()
    assert (bad["offset"], "99" in bad["reason"]) == (6, True)
    assert ingest_local(warehouse, path).number is None
    assert "coordinator_record" not in warehouse.tables()


def test_user_topics_are_stored_as_log_ends_only(tmp_path: Path) -> None:
    batches = log(1, 40)
    write(tmp_path / "logs", batches[:20], topic="orders", partition=4)
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs")
    write(tmp_path / "logs", batches, topic="orders", partition=4)
    ingest_local(warehouse, tmp_path / "logs")
    assert warehouse.tables() == ["log_end", "pipeline_run"]
    rows = read.table(warehouse, "log_end").to_pylist()
    assert [(r["topic"], r["partition"]) for r in rows] == [("orders", 4)] * len(rows)
    assert rows[0]["base_offset"] == 0 and rows[-1]["log_end_offset"] == batches[-1][-1].offset + 1
    assert sum(r["batches"] for r in rows) == 40
    for row, following in itertools.pairwise(rows):
        assert row["log_end_offset"] == following["base_offset"]
    assert ingest_local(warehouse, tmp_path / "logs").number is None


def test_topic_names_come_from_metadata_log_folders_and_commits(tmp_path: Path) -> None:
    """Also from a snapshot that replaced a part of the metadata log."""
    ids = [Uuid(bytes([n]) * 16) for n in range(1, 5)]
    logged = [TopicRecord(name="orders", topic_id=ids[0])]
    logged += [PartitionRecord(topic_id=ids[0], partition_id=n) for n in range(3)]
    batches = [[Record(n, 1, *encode_cluster_record(record))] for n, record in enumerate(logged)]
    write(tmp_path / "logs", batches, topic="__cluster_metadata")
    write(tmp_path / "logs", log(1, 2), topic="payments", partition=6)
    (tmp_path / "logs" / "payments-6" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[1]}")
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs", cluster="c")
    assert topic_names(warehouse) == [(str(ids[0]), "orders", 3), (str(ids[1]), "payments", 7)]
    folded = tmp_path / "logs" / "__cluster_metadata-0" / f"{9:020}-{1:010}.checkpoint"
    write(tmp_path / "x", [[Record(0, 1, *encode_cluster_record(TopicRecord(name="old", topic_id=ids[2])))]])
    folded.write_bytes((tmp_path / "x" / f"{OFFSETS}-0" / f"{0:020}.log").read_bytes())
    ingest_local(warehouse, tmp_path / "logs", cluster="c")
    assert (str(ids[2]), "old", -1) in topic_names(warehouse)
    assert ingest_local(warehouse, tmp_path / "logs", cluster="c").number is None
    assert {r["cluster"] for r in read.table(warehouse, "topic_name").to_pylist()} == {"c"}


def topic_names(warehouse: Warehouse) -> list[tuple[str, str, int]]:
    rows = read.table(warehouse, "topic_name").to_pylist()
    return [(r["topic_id"], r["topic"], r["partitions"]) for r in rows]


def test_two_clusters_share_a_warehouse(tmp_path: Path) -> None:
    """Equal topics and offsets of different clusters are different rows."""
    for name in ("one", "two"):
        write(tmp_path / name, log(len(name), 10))
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={name}\nnode.id=1\n")
    write(tmp_path / "two", log(9, 10))
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "one", tmp_path / "two")
    found = read.table(warehouse, "coordinator_record", ["cluster", "offset"]).to_pylist()
    assert [r["offset"] for r in found if r["cluster"] == "two"] == [r.offset for b in log(9, 10) for r in b]
    assert {r["cluster"] for r in found} == {"one", "two"}


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams", "transactions"])
def test_kafkas_own_logs(tmp_path: Path, name: str) -> None:
    """Every record that Kafka decoded is stored, and none is quarantined."""
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, LOGS / name)
    rows = [json.loads(line) for line in (LOGS / name / "expected.jsonl").read_text("utf-8").splitlines()]
    coordinator_topics = ("__consumer_offsets", "__share_group_state", "__transaction_state")
    wanted = sorted(
        (r["topic"], r["partition"], r["offset"], r["timestamp"], r["batch_base_offset"]) for r in rows
        if r["topic"] in coordinator_topics
    )  # fmt: skip
    columns = ["topic", "partition", "offset", "timestamp_ms", "batch_base_offset"]
    found = read.table(warehouse, "coordinator_record", columns).to_pylist()
    assert sorted(tuple(r.values()) for r in found) == wanted
    assert "quarantine" not in warehouse.tables()


# selected tables and progress ---------------------------------------------------------------------


def test_ingest_of_selected_tables(tmp_path: Path) -> None:
    write(tmp_path / "logs", log(1, 20))
    warehouse = Warehouse(tmp_path / "w")
    ingest_local(warehouse, tmp_path / "logs", tables=["offset_commit"])
    assert warehouse.tables() == ["offset_commit", "pipeline_run"]
    whole = Warehouse(tmp_path / "all")
    ingest_local(whole, tmp_path / "logs")
    assert read.table(warehouse, "offset_commit").equals(read.table(whole, "offset_commit"))
    with pytest.raises(WrongTables, match="only offset_commit, not with all tables"):
        ingest_local(warehouse, tmp_path / "logs")
    assert ingest_local(warehouse, tmp_path / "logs", tables={"offset_commit"}).number is None
    with pytest.raises(WrongTables, match="no table is called offsets"):
        ingest_local(warehouse, tmp_path / "logs", tables=["offsets"])


def test_progress_is_reported_to_the_end(tmp_path: Path) -> None:
    write(tmp_path / "logs", log(1, 200), cuts=[50, 100])
    reported: list[Progress] = []
    report = ingest_local(Warehouse(tmp_path / "w"), tmp_path / "logs", progress=reported.append)
    assert (reported[0].tasks, reported[0].tasks_done, reported[0].done) == (3, 0, 0.0)
    assert reported[-1].done == 1.0 and reported[-1].tasks_done == reported[-1].tasks == report.tasks
    assert all(a.bytes_done <= b.bytes_done and a.rows <= b.rows for a, b in itertools.pairwise(reported))
