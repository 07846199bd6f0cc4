"""Gold table of share deliveries: share-state records are counted once, and unknown offsets stay unknown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.commit_logs import LOGS

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.delivery import delivery_rows
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

BATCH = pa.struct(
    [
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("delivery_state", pa.int8()),
        pa.field("delivery_count", pa.int16()),
    ]
)
UPDATE = pa.schema(
    [
        pa.field("cluster", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("tombstone", pa.bool_()),
        pa.field("group_id", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("snapshot_epoch", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("start_offset", pa.int64()),
        pa.field("delivery_complete_count", pa.int32()),
        pa.field("state_batches", pa.list_(BATCH)),
    ]
)
SNAPSHOT = pa.schema(
    [
        *UPDATE,
        pa.field("state_epoch", pa.int32()),
        pa.field("create_timestamp", pa.int64()),
        pa.field("write_timestamp", pa.int64()),
    ]
)
AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4


def record(
    kind: str, offset: int, batches: Sequence[tuple[int, int, int, int]] = (), **fields: Any
) -> dict[str, Any]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    row = {
        "kind": kind, "cluster": "c", "offset": offset, "timestamp_ms": 1000 + offset,
        "tombstone": kind == "tombstone", "group_id": "g", "topic_id": "T", "partition": 0,
        "snapshot_epoch": 0, "state_epoch": 1, "leader_epoch": 0, "start_offset": -1,
        "delivery_complete_count": -1, "create_timestamp": 0, "write_timestamp": 0,
        "state_batches": [dict(zip(names, batch, strict=True)) for batch in batches],
    }  # fmt: skip
    return row | fields


def silver(records: Sequence[dict[str, Any]]) -> list[list[pa.RecordBatch]]:
    updates = [r for r in records if r["kind"] == "update"]
    snapshots = [r for r in records if r["kind"] != "update"]
    return [
        pa.Table.from_pylist(rows, schema=schema).to_batches(max_chunksize=3)
        for rows, schema in ((snapshots, SNAPSHOT), (updates, UPDATE))
    ]


def delivery(records: Sequence[dict[str, Any]], names: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in delivery_rows(*silver(records), names) for row in batch.to_pylist()]


def progress(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    list(delivery_rows(*silver(records), {}, lambda batch: rows.extend(batch.to_pylist())))
    return rows


def counts_of(row: dict[str, Any]) -> dict[str, int]:
    names = ("delivered", "acknowledged", "released", "archived", "in_flight", "untold")
    return {name: row[name] for name in names if row[name]}


def kafka_share_logs() -> Iterator[list[dict[str, Any]]]:
    """Yield the share-state records of each partition of Kafka's golden log."""
    partitions: dict[int, list[dict[str, Any]]] = {}
    for line in (LOGS / "share" / "expected.jsonl").read_text("utf-8").split("\n"):
        entry = json.loads(line) if line else {"topic": ""}
        if entry["topic"] != "__share_group_state":
            continue
        key, value = entry["key"], entry["value"]
        kind = "tombstone" if value is None else entry["key_name"].removeprefix("SHARE_").lower()
        value = value or {}
        batches = [
            (b["firstOffset"], b["lastOffset"], b["deliveryState"], b["deliveryCount"])
            for b in value.get("stateBatches", ())
        ]
        partitions.setdefault(entry["partition"], []).append(
            record(
                kind, entry["offset"], batches, timestamp_ms=entry["timestamp"], group_id=key["groupId"],
                topic_id=key["topicId"], partition=key["partition"],
                snapshot_epoch=value.get("snapshotEpoch"), state_epoch=value.get("stateEpoch"),
                leader_epoch=value.get("leaderEpoch"), create_timestamp=value.get("createTimestamp"),
                write_timestamp=value.get("writeTimestamp"), start_offset=value.get("startOffset"),
                delivery_complete_count=value.get("deliveryCompleteCount", -1),
            )
        )  # fmt: skip
    yield from partitions.values()


def final() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((LOGS / "share" / "final.json").read_text("utf-8"))
    return found


def kafka_rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Return Kafka's delivery rows by group and `topic-partition`."""
    names = {details["id"]: topic for topic, details in final()["topics"].items()}
    rows = [row for log in kafka_share_logs() for row in delivery(log, names)]
    return {(row["group_id"], f"{row['topic']}-{row['partition']}"): row for row in rows}


def test_start_offsets_match_kafkas_final_description() -> None:
    rows = kafka_rows()
    start_offsets = {
        (group, where): offset
        for group, description in final()["groups"].items()
        for where, offset in description["shareStartOffsets"].items()
    }
    assert {key: rows[key]["start_offset"] for key in start_offsets} == start_offsets
    assert all(rows[key]["deleted_ms"] is None for key in start_offsets)
    assert {row["evidence"] for row in rows.values()} == {"observed"}


def test_counts_match_the_acknowledgements_of_kafkas_clients() -> None:
    """The scenario's story lists how many records each client accepted, rejected and released."""
    answers: dict[tuple[str, str], dict[str, int]] = {}
    for line in (LOGS / "share" / "story.jsonl").read_text("utf-8").split("\n"):
        action = json.loads(line) if line else {"action": ""}
        if action["action"] != "acknowledged" or action["group"] != "alive":
            continue
        for part in action["detail"].strip("{}").split("], "):
            where, answer = part.split(" ", 1)
            kind, offsets = answer.rstrip("]").split("=[")
            counts = answers.setdefault((action["group"], where), {"accept": 0, "reject": 0, "release": 0})
            counts[kind] += len(offsets.split(","))
    rows = kafka_rows()
    assert answers
    for key, counts in answers.items():
        found = rows[key]
        assert {
            "accept": found["acknowledged"], "reject": found["archived"], "release": found["released"],
        } == counts, key  # fmt: skip
        assert found["delivered"] == sum(counts.values()), key
        assert (found["in_flight"], found["untold"]) == (0, 0), key


def test_warehouse_resolves_topic_ids_through_the_group_log(tmp_path: Path) -> None:
    """From segments to gold: share states have topic ids only, and the group's log gives their names."""
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / "share"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "share_delivery").to_pylist()
    found = {(row["group_id"], f"{row['topic']}-{row['partition']}"): row for row in rows}
    expected = kafka_rows()
    assert found[("picky", "mails-0")]["deleted_ms"], "the topic was deleted, and its state with it"
    for key in expected:
        if key[1].startswith(("jobs", "extra")):
            assert found[key] == expected[key] | {"cluster": ""}
    assert {where.rsplit("-", 1)[0] for _, where in found} == {"jobs", "extra", "mails"}


def test_delivery_row_has_all_columns() -> None:
    (row,) = delivery(
        [
            record("snapshot", 0),
            record("update", 1, [(0, 4, ACKNOWLEDGED, 1), (6, 9, AVAILABLE, 2)], start_offset=0,
                   delivery_complete_count=5),
        ],
        {"T": "jobs"},
    )  # fmt: skip
    assert row == {
        "cluster": "c", "group_id": "g", "topic": "jobs", "partition": 0, "state_epoch": 1, "start_offset": 0,
        "delivered": 13, "redelivered": 4, "acknowledged": 5, "released": 4, "archived": 0, "in_flight": 4,
        "available": 4, "archiving": 0, "untold": 1, "in_flight_deliveries": 2, "complete_count": 5,
        "max_delivery_count": 2, "snapshots": 1, "updates": 1, "first_ms": 1000, "last_ms": 1001,
        "moved_ms": 1001, "deleted_ms": None, "evidence": "observed",
    }  # fmt: skip


def test_snapshot_of_known_states_adds_nothing() -> None:
    batches = [(0, 4, ACKNOWLEDGED, 1), (5, 5, AVAILABLE, 3)]
    once = [record("snapshot", 0), record("update", 1, batches, start_offset=0)]
    again = [*once, record("snapshot", 2, batches, start_offset=0, snapshot_epoch=1)]
    assert counts_of(delivery(again)[0]) == counts_of(delivery(once)[0])
    assert delivery(again)[0]["evidence"] == "observed"


def test_of_two_states_of_an_offset_the_larger_delivery_count_wins() -> None:
    rows = [
        record("snapshot", 0),
        record("update", 1, [(0, 9, AVAILABLE, 2)], start_offset=0),
        record("update", 2, [(3, 5, AVAILABLE, 1)]),
        record("update", 3, [(4, 4, ACKNOWLEDGED, 3)]),
    ]
    assert counts_of(delivery(rows)[0]) == {
        "delivered": 21,
        "acknowledged": 1,
        "released": 10,
        "in_flight": 9,
    }


def test_archiving_is_in_flight_until_it_is_archived() -> None:
    rows = [record("snapshot", 0), record("update", 1, [(0, 1, ARCHIVING, 5)], start_offset=0)]
    assert counts_of(delivery(rows)[0]) == {"delivered": 10, "in_flight": 2}
    rows.append(record("update", 2, [(0, 1, ARCHIVED, 5)]))
    assert counts_of(delivery(rows)[0]) == {"delivered": 10, "archived": 2}


def test_reset_state_counts_its_offsets_again() -> None:
    """After an administrator reset the start offset, records are delivered a second time."""
    first = [record("snapshot", 0), record("update", 1, [(0, 4, ACKNOWLEDGED, 1)], start_offset=0)]
    second = [
        record("snapshot", 2, snapshot_epoch=1, state_epoch=2, start_offset=0),
        record("update", 3, [(0, 4, ACKNOWLEDGED, 1)], snapshot_epoch=1),
    ]
    assert counts_of(delivery(first + second)[0]) == {"delivered": 10, "acknowledged": 10}


def test_deleted_state_keeps_its_counts_and_deletion_time() -> None:
    rows = [record("snapshot", 0), record("update", 1, [(0, 4, ACKNOWLEDGED, 1)], start_offset=0)]
    (row,) = delivery([*rows, record("tombstone", 2)])
    assert (row["deleted_ms"], row["acknowledged"], row["last_ms"]) == (1002, 5, 1002)
    (row,) = delivery([*rows, record("tombstone", 2), record("snapshot", 3)])
    assert (row["deleted_ms"], row["acknowledged"], row["evidence"]) == (None, 5, "observed")


@pytest.mark.parametrize(
    "rows",
    [
        [record("update", 1, start_offset=0)],
        [record("snapshot", 1, snapshot_epoch=3)],
        [record("snapshot", 1), record("snapshot", 2, snapshot_epoch=2)],
        [record("snapshot", 1), record("update", 2, snapshot_epoch=1)],
    ],
    ids=["no snapshot", "not the first", "one left out", "another's update"],
)
def test_history_with_a_gap_has_missing_evidence(rows: list[dict[str, Any]]) -> None:
    assert delivery(rows)[0]["evidence"] == "missing"


def test_states_below_the_start_offset_are_dropped() -> None:
    rows = [
        record("snapshot", 0),
        record("update", 1, [(0, 4, AVAILABLE, 1)], start_offset=0),
        record("update", 2, start_offset=3),
        record("update", 3, [(0, 4, ACKNOWLEDGED, 2)]),
    ]
    assert counts_of(delivery(rows)[0]) == {"delivered": 7, "acknowledged": 2, "released": 5}


@pytest.mark.parametrize("seed", range(30))
def test_interval_counts_match_a_model_of_single_offsets(seed: int) -> None:
    rng = random.Random(seed)
    state: dict[int, tuple[int, int]] = {}
    expected = {"delivered": 0, "acknowledged": 0, "released": 0, "archived": 0, "in_flight": 0, "untold": 0}
    rows, start = [record("snapshot", 0)], 0
    for offset in range(1, 25):
        first = rng.randrange(30)
        batch = (first, first + rng.randrange(6), rng.choice((0, 2, 3, 4)), rng.randrange(1, 4))
        moved = rng.choice((-1, start, start + rng.randrange(3)))
        rows.append(record("update", offset, [batch], start_offset=moved))
        for at in range(max(batch[0], start), batch[1] + 1):
            times, kind = state.get(at, (0, -1))
            if (batch[3], batch[2]) > (times, kind):
                state[at] = (batch[3], batch[2])
                expected["delivered"] += batch[3] - times
                name = {0: "released", 2: "acknowledged", 4: "archived"}.get(batch[2])
                if name:
                    expected[name] += 1
        start = max(start, moved)
        state = {at: delivery for at, delivery in state.items() if at >= start}
    expected["in_flight"] = sum(kind in (0, 3) for _, kind in state.values())
    expected["untold"] = max(state) + 1 - start - len(state) if state else 0
    (row,) = delivery(rows)
    assert {name: row[name] for name in expected} == expected


def in_minutes(records: Sequence[dict[str, Any]], step_ms: int) -> list[dict[str, Any]]:
    return [row | {"timestamp_ms": row["offset"] * step_ms} for row in records]


def test_minute_row_has_its_counts_and_the_state_at_its_end() -> None:
    rows = [
        record("snapshot", 0, start_offset=0),
        record("update", 1, [(0, 4, ACKNOWLEDGED, 1), (6, 9, AVAILABLE, 1)]),
        record("update", 2, [(5, 9, AVAILABLE, 2)], start_offset=5, delivery_complete_count=0),
        record("update", 3, [(5, 8, ACKNOWLEDGED, 3), (9, 9, ARCHIVING, 3)], start_offset=9),
    ]
    nothing = dict.fromkeys(("delivered", "redelivered", "acknowledged", "released", "archived"), 0)
    assert progress(in_minutes(rows, 40_000)) == [
        {"cluster": "c", "group_id": "g", "topic": "T", "partition": 0, **shown}
        for shown in (
            nothing | {
                "minute_ms": 0, "start_offset": 0, "advanced": None, "complete_count": None, "delivered": 9,
                "acknowledged": 5, "released": 4, "available": 4, "archiving": 0, "untold": 1,
                "in_flight_deliveries": 1, "records": 2, "last_ms": 40_000, "evidence": "observed",
            },
            nothing | {
                "minute_ms": 60_000, "start_offset": 5, "advanced": 5, "complete_count": 0, "delivered": 6,
                "redelivered": 5, "released": 5, "available": 5, "archiving": 0, "untold": 0,
                "in_flight_deliveries": 2, "records": 1, "last_ms": 80_000, "evidence": "observed",
            },
            nothing | {
                "minute_ms": 120_000, "start_offset": 9, "advanced": 4, "complete_count": None,
                "delivered": 5, "redelivered": 5, "acknowledged": 4, "available": 0, "archiving": 1,
                "untold": 0, "in_flight_deliveries": 3, "records": 1, "last_ms": 120_000,
                "evidence": "observed",
            },
        )
    ]  # fmt: skip


def test_backward_clock_adds_no_second_row_of_a_minute() -> None:
    rows = [
        record("snapshot", 0, timestamp_ms=120_000),
        record("update", 1, [(0, 0, ACKNOWLEDGED, 1)], start_offset=0, timestamp_ms=59_000),
    ]
    assert [(row["minute_ms"], row["records"]) for row in progress(rows)] == [(120_000, 2)]


def test_reset_or_deleted_state_has_no_advance() -> None:
    rows = [
        record("snapshot", 0, start_offset=0),
        record("update", 1, [(0, 4, ACKNOWLEDGED, 1)], start_offset=5),
        record("snapshot", 2, snapshot_epoch=1, state_epoch=2, start_offset=0),
        record("tombstone", 3),
    ]
    found = progress(in_minutes(rows, 60_000))
    assert [(r["start_offset"], r["advanced"]) for r in found] == [(0, None), (5, 5), (0, None), (None, None)]


def test_evidence_is_missing_until_the_next_snapshot() -> None:
    rows = [
        record("snapshot", 0, start_offset=0),
        record("update", 1, snapshot_epoch=1),
        record("update", 2, snapshot_epoch=1),
        record("snapshot", 3, snapshot_epoch=2, start_offset=3),
        record("update", 4, snapshot_epoch=2),
    ]
    found = progress(in_minutes(rows, 60_000))
    assert [r["evidence"] for r in found] == ["observed", "missing", "missing", "observed", "observed"]


def test_minute_rows_add_up_to_the_delivery_row() -> None:
    """Sums over minutes match the delivery row of each share partition of Kafka's log, with unique keys."""
    for log in kafka_share_logs():
        minutes = progress(log)
        keys = {tuple(row[name] for name in TABLES["share_progress"].key) for row in minutes}
        assert len(keys) == len(minutes)
        for row in delivery(log):
            partition_minutes = [
                m for m in minutes if all(m[name] == row[name] for name in TABLES["share_delivery"].key)
            ]
            for name in ("delivered", "redelivered", "acknowledged", "released", "archived"):
                assert sum(m[name] for m in partition_minutes) == row[name]
            assert sum(m["records"] for m in partition_minutes) == row["snapshots"] + row["updates"] + (
                row["deleted_ms"] is not None
            )
            if row["deleted_ms"] is None:
                for name in ("start_offset", "complete_count", "available", "untold"):
                    assert partition_minutes[-1][name] == row[name]


def test_rows_have_the_tables_schema_and_the_order_of_its_key() -> None:
    rows = [record("snapshot", at, group_id=group) for at, group in enumerate("ba")]
    (batch,) = delivery_rows(pa.Table.from_pylist(rows, schema=SNAPSHOT).to_batches(), ())
    assert batch.schema == TABLES["share_delivery"].schema
    assert batch["group_id"].to_pylist() == ["a", "b"]
    assert list(delivery_rows((), ())) == []
    watched: list[pa.RecordBatch] = []
    list(delivery_rows(*silver(rows), {}, watched.append))
    assert [batch.schema for batch in watched] == [TABLES["share_progress"].schema]
