"""Ingest logs in steps as a stream does, but without Spark; and write the logs of a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.pipeline.reduce.playing import Played
from tests.pipeline.segments import Record, write

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.worker import GOLD_OF
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.decode import reading
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.sources.limits import Limit
from konvene.pipeline.sources.plan import Files, Slice
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.audit import RebalanceKey
from konvene.records.coordinator import AUDIT_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated

GOLD = sorted(name for names in GOLD_OF.values() for name in names)
WANTED = reading("log_part").wanted


def steps(
    logs: Path, records: int, reached: dict[Partition, int] | None = None, **limits: int
) -> Iterator[list[Slice]]:
    """Yield the parts of a log in steps of about `records` records, from `reached` on, which is updated."""
    source = Files((str(logs),), **limits)
    start = {} if reached is None else reached
    target = {of: place.next for of, place in source.places(WANTED).items()}
    while any(start.get(of, 0) < end for of, end in target.items()):
        end = source.limited(WANTED, start, target, Limit(records=records))
        yield source.slices(WANTED, start, end)
        start.update(end)


def built_in_steps(home: Path, logs: Path, records: int) -> Warehouse:
    """Ingest and build a warehouse in steps of about `records` records."""
    for parts in steps(logs, records):
        step(Warehouse(home), parts, Local(), [str(logs)])
    return Warehouse(home)


def built_at_once(home: Path, logs: Path) -> Warehouse:
    """Ingest and build a warehouse in one step."""
    warehouse = Warehouse(home)
    ingest(warehouse, [logs], Local())
    build(warehouse, Local())
    return warehouse


def sums(warehouse: Warehouse) -> dict[str, list[tuple[str, str]]]:
    """Return the names and checksums of all gold files by table."""
    return {name: [(f.path, f.sha256) for f in warehouse.files(name)] for name in GOLD}


def gold_rows(warehouse: Warehouse) -> dict[str, list[dict[str, Any]]]:
    return {name: read.table(warehouse, name).to_pylist() for name in GOLD}


def write_simulated_logs(folder: Path, played: Played) -> Path:
    """Write the log and the audit of a simulated coordinator as a broker stores them."""
    batches = [
        [Record(at, batch.timestamp_ms, *pair) for at, pair in enumerate(batch.pairs, base)]
        for batch, base in zip(played.batches, played.first, strict=False)
    ]
    write(folder, batches, cuts=range(200, len(batches), 200))
    write(folder, [[record] for record in audit_records(played)], topic="__konvene_audit")
    return folder


def audit_records(played: Played) -> Iterator[Record]:
    for at, ((group_id, story), base, last) in enumerate(played.rebalances):
        where = (
            {"partition": 0, "base_offset": played.first[base], "last_offset": played.first[last + 1] - 1}
            if base >= 0
            else {}
        )
        record = Coordinated(RebalanceKey(group=group_id), story.replace(**where))
        yield Record(at, story.ended_ms, *encode_record(record, AUDIT_RECORDS))
