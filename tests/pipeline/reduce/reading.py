"""Feed logs to the pipeline's reducer and return its rows by column name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.groups.history.logs import LOGS, Batch, golden

from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.tables import TABLES

Rows = dict[str, list[dict[str, Any]]]

LOGS_OF_GROUPS = ("classic", "consumer", "share", "streams", "transactions")


def read_json_lines(name: str, file: str) -> list[Any]:
    return [json.loads(line) for line in (LOGS / name / file).read_text().splitlines()]


def final(name: str) -> Any:
    return json.loads((LOGS / name / "final.json").read_text())


def names_of(name: str) -> dict[str, str]:
    """Return topic names by topic id, as they were at the end of the scenario."""
    return {topic["id"]: topic_name for topic_name, topic in final(name)["topics"].items()}


def feed(reducer: PartitionReducer, log: Sequence[Batch]) -> None:
    for batch in log:
        reducer.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            reducer.take_record(entry.offset, entry.timestamp_ms, entry.record)


def reduced(
    log: Sequence[Batch],
    partition: int = 0,
    audit: Iterable[Mapping[str, Any]] = (),
    names: Mapping[str, str] | None = None,
) -> Rows:
    """Return all rows that the reducer derives from a log."""
    reducer = PartitionReducer("c", partition, audit, names)
    feed(reducer, log)
    reducer.finish()
    return named(reducer.drain())


def named(drained: Mapping[str, list[tuple[Any, ...]]]) -> Rows:
    return {
        table: [dict(zip(TABLES[table].schema.names, row, strict=True)) for row in rows]
        for table, rows in drained.items()
    }


def golden_rows(name: str) -> Rows:
    """Return the rows of all partitions of a golden log."""
    found: Rows = {}
    for partition, log in golden(name).items():
        for table, rows in reduced(log, partition, (), names_of(name)).items():
            found.setdefault(table, []).extend(rows)
    return found
