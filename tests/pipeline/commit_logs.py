"""Small logs of commits as bronze and silver tables: made by hand, or Kafka's golden logs of
`tests/vectors`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

LOGS = Path(__file__).parents[1] / "vectors" / "logs"

SILVER = pa.schema(
    [
        pa.field("cluster", pa.string()),
        pa.field("log_topic", pa.string()),
        pa.field("log_partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("batch_base_offset", pa.int64()),
        pa.field("tombstone", pa.bool_()),
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed_offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp", pa.int64()),
        pa.field("expire_timestamp", pa.int64()),
    ]
)
BRONZE = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("attributes", pa.int16()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("key", pa.binary()),
    ]
)
_CONTROL_KEYS = {"ABORT": b"\0\0\0\0", "COMMIT": b"\0\0\0\1"}


def commit(
    offset: int, ms: int, committed: int | None, key: str = "g/t/0", producer: int = -1
) -> dict[str, Any]:
    """Return a commit record; a tombstone if `committed` is None."""
    return {"offset": offset, "ms": ms, "committed": committed, "key": key, "producer": producer}


def marker(offset: int, ms: int, producer: int, kind: str) -> dict[str, Any]:
    return {"offset": offset, "ms": ms, "producer": producer, "control": kind}


def silver(rows: Sequence[dict[str, Any]]) -> pa.Table:
    records = []
    for row in rows:
        if "control" in row:
            continue
        group, topic, partition = row["key"].rsplit("/", 2)
        has_value = row["committed"] is not None
        records.append(
            {
                "cluster": "c", "log_topic": "__consumer_offsets", "log_partition": 0,
                "offset": row["offset"],
                "timestamp_ms": row["ms"], "batch_base_offset": row["offset"], "tombstone": not has_value,
                "group": group, "topic": topic, "partition": int(partition),
                "committed_offset": row["committed"], "leader_epoch": -1 if has_value else None,
                "metadata": row.get("metadata", "") if has_value else None,
                "commit_timestamp": row["ms"] if has_value else None,
                "expire_timestamp": -1 if has_value else None,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(records, schema=SILVER)


def bronze(rows: Sequence[dict[str, Any]]) -> pa.Table:
    records = []
    for row in rows:
        control = row.get("control")
        attributes = (0x10 if row["producer"] >= 0 else 0) | (0x20 if control else 0)
        key = _CONTROL_KEYS[control] if control else b"\0\1rest"
        records.append(
            {
                "offset": row["offset"], "timestamp_ms": row["ms"], "attributes": attributes,
                "producer_id": row["producer"], "producer_epoch": min(row["producer"], 0), "key": key,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(records, schema=BRONZE)


def golden(scenario: str) -> dict[int, list[dict[str, Any]]]:
    """Return the commits and markers of each partition of `__consumer_offsets`, as Kafka decoded them."""
    found: dict[int, list[dict[str, Any]]] = {}
    for record in _expected(scenario):
        control = record.get("control")
        if record["topic"] != "__consumer_offsets" or (not control and record["key_type"] not in (0, 1)):
            continue
        row = {
            "offset": record["offset"],
            "ms": record["timestamp"],
            "producer": record.get("producer_id", -1),
        }
        if control:
            row["control"] = control
        else:
            key, value = record["key"], record["value"]
            row["key"] = f"{key['group']}/{key['topic']}/{key['partition']}"
            row["committed"] = None if value is None else value["offset"]
            row["metadata"] = "" if value is None else value["metadata"]
        found.setdefault(record["partition"], []).append(row)
    return found


def _expected(scenario: str) -> Iterator[dict[str, Any]]:
    for line in (LOGS / scenario / "expected.jsonl").read_text("utf-8").split("\n"):
        if line:
            yield json.loads(line)


def final(scenario: str) -> dict[str, tuple[int, str]]:
    """Return the offsets and metadata that Kafka described at the end of the scenario, by group, topic and
    partition."""
    groups = json.loads((LOGS / scenario / "final.json").read_text("utf-8"))["groups"]
    return {
        f"{group}/{'/'.join(partition.rsplit('-', 1))}": (committed["offset"], committed["metadata"])
        for group, description in groups.items()
        for partition, committed in (description.get("offsets") or {}).items()
    }
