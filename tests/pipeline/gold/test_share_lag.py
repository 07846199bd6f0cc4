"""Lag of share groups: records from the start offset on that are not yet completed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.pipeline.answers.sample import filled
from tests.pipeline.segments import LOGS

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.lag import Ends
from konvene.pipeline.gold.share_lag import share_lag
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

MINUTE = 60_000


def minute(**fields: Any) -> dict[str, Any]:
    row = {
        "cluster": "c", "group_id": "g", "topic": "jobs", "partition": 0, "minute_ms": MINUTE,
        "start_offset": 10, "records": 3, "last_ms": MINUTE + 7, "evidence": "observed",
    }  # fmt: skip
    return filled("share_progress", row | fields)


def ends(*stretches: tuple[int, int, int]) -> Ends:
    """Return the ends of `jobs-0` from stretches of first offset, end offset and time."""
    rows = [
        filled("log_end", {"topic": "jobs", "base_offset": base, "log_end_offset": end,
                           "first_timestamp_ms": ms, "timestamp_ms": ms})
        for base, end, ms in stretches
    ]  # fmt: skip
    return Ends(pa.Table.from_pylist(rows, TABLES["log_end"].schema).to_batches())


KNOWN = ends((0, 20, 30_000), (20, 25, 90_000), (25, 30, 3 * MINUTE))


def lag(*rows: dict[str, Any], known: Ends = KNOWN) -> list[dict[str, Any]]:
    (batch,) = pa.Table.from_pylist(list(rows), TABLES["share_progress"].schema).to_batches()
    made = share_lag(batch, known)
    assert made.schema == TABLES["lag"].schema
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def test_lag_row_has_all_columns() -> None:
    """The end is that at the minute's end; the record at the start offset is a minute and a half old."""
    assert lag(minute(advanced=4)) == [
        {
            "cluster": "c", "group_id": "g", "topic": "jobs", "partition": 0, "minute_ms": MINUTE,
            "committed_offset": 10, "commit_ms": MINUTE + 7, "commits": 3, "advanced": 4,
            "log_end_offset": 25, "lag": 15, "time_lag_ms": 90_000, "evidence": "observed",
        }
    ]  # fmt: skip


def test_completed_records_after_the_start_offset_are_no_lag() -> None:
    assert [row["lag"] for row in lag(minute(complete_count=11))] == [4]
    (row,) = lag(minute(complete_count=15))
    assert (row["lag"], row["time_lag_ms"]) == (0, 0)


def test_without_the_topics_log_end_and_lag_are_unknown() -> None:
    (row,) = lag(minute(topic="mails"))
    assert (row["committed_offset"], row["log_end_offset"], row["lag"], row["time_lag_ms"]) == (
        10,
        *[None] * 3,
    )


def test_uninitialized_and_deleted_states_have_no_row() -> None:
    assert [
        row["minute_ms"] for row in lag(minute(start_offset=-1), minute(start_offset=None), minute())
    ] == [MINUTE]


def test_evidence_is_the_weaker_of_both() -> None:
    assert [row["evidence"] for row in lag(minute(), minute(evidence="missing"))] == ["observed", "missing"]
    assert lag(minute(minute_ms=2 * MINUTE))[0]["evidence"] == "observed"
    assert lag(minute(minute_ms=3 * MINUTE))[0]["evidence"] == "inferred", "the log may have grown further"


def test_last_rows_have_kafkas_final_start_offsets(tmp_path: Path) -> None:
    """The last row of each existing share partition has the start offset that Kafka described."""
    warehouse = Warehouse(tmp_path)
    ingest(warehouse, [LOGS / "share"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "lag").to_pylist()
    keys = [tuple(row[name] for name in TABLES["lag"].key) for row in rows]
    assert len(set(keys)) == len(keys)
    last: dict[tuple[str, str], int] = {}
    for row in sorted(rows, key=lambda row: int(row["minute_ms"])):
        last[row["group_id"], f"{row['topic']}-{row['partition']}"] = row["committed_offset"]
    final = json.loads((LOGS / "share" / "final.json").read_text())
    start_offsets = {
        (group, where): offset
        for group, description in final["groups"].items()
        for where, offset in description["shareStartOffsets"].items()
    }
    assert {key: last[key] for key in start_offsets} == start_offsets
