"""Compare the rows of the reducer with what the independent reader finds, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from tests.pipeline.independent.reader import Found
from tests.pipeline.reduce.reading import Rows

from konvene.codec.json import to_json
from konvene.records.coordinator import Record

CELLS = (
    "group_type", "to_epoch", "state", "members", "units", "moved", "kept", "added", "revoked", "converged",
    "superseded_by", "start_ms", "end_ms", "duration_ms", "unavailable_ms",
)  # fmt: skip


def differences(rows: Rows, found: Found) -> list[str]:
    """Return the cells of `rebalance` and the rows of `unavailability` that differ, as text.

    Rows with missing evidence are about records that the log does not have: they are left out."""
    result = []
    expected = _by_group([asdict(r) | {"duration_ms": r.duration_ms} for r in found.rebalances])
    actual = _by_group([row for row in rows["rebalance"] if row["evidence"] != "missing"])
    for group in sorted(expected.keys() | actual.keys()):
        ours, theirs = actual[group], expected[group]
        if [row["to_epoch"] for row in ours] != [row["to_epoch"] for row in theirs]:
            epochs = [[row["to_epoch"] for row in some] for some in (ours, theirs)]
            result.append(f"{group}: epochs {epochs[0]}, expected {epochs[1]}")
            continue
        result += [
            f"{group} {one['to_epoch']}: {cell} is {one[cell]}, expected {other[cell]}"
            for one, other in zip(ours, theirs, strict=True)
            for cell in CELLS
            if one[cell] != other[cell]
        ]
    gaps = {
        (g["group_id"], (g["topic"], g["partition"], g["role"]), g["from_ms"], g["to_ms"], g["left_open_by"])
        for g in rows["unavailability"]
    }
    result += [f"unexpected gap {gap}" for gap in sorted(gaps - set(found.gaps), key=str)]
    result += [f"missing gap {gap}" for gap in sorted(set(found.gaps) - gaps, key=str)]
    return result


def _by_group(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_group: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["end_ms"] is None, row["last_offset"])):
        by_group[row["group_id"]].append(row)
    return by_group


def printed(
    offset: int, base_offset: int, timestamp_ms: int, record: Record, value: bytes | None
) -> Mapping[str, Any]:
    """Return a record as Kafka's decoder prints it.

    `value` are its bytes, which begin with the version; without them the version is 0."""
    version = 0 if value is None else int.from_bytes(value[:2], "big")
    return {
        "offset": offset,
        "batch_base_offset": base_offset,
        "timestamp": timestamp_ms,
        "key_name": _snake(type(record.key).__name__.removesuffix("Key")),
        "key": to_json(record.key, 0),
        "value": None if record.value is None else to_json(record.value, version),
    }


def _snake(name: str) -> str:
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(name)).upper()
