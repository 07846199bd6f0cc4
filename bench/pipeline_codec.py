"""Decoding a coordinator's log into tables: records per CPU second, without broker and Spark.

The log is synthetic (`bench.coordinator_log`) and in memory. Each figure includes the steps of the one before
it. The first is the baseline without a pipeline: a Python loop over batches, records and fields that produces
no output.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench.coordinator_log import TOPIC, segment
from bench.figures import Figure
from bench.systems import Lab
from konvene.codec.batches import batches, records
from konvene.pipeline.codec.bronze import blocks
from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.parquet import Sink
from konvene.records.commits import decode_group_record

RECORDS = 400_000
BRONZE = TABLES["coordinator_record"].schema


def loop(data: bytes) -> None:
    """Decode record by record."""
    for header, batch in batches(data):
        for record in records(batch, header):
            decode_group_record(record.key, record.value)


def bronze(data: bytes) -> None:
    for found in blocks(data, segment_base=0):
        found.rows("cluster", TOPIC, 0).batch()


def typed(data: bytes, keep: Callable[[str, pa.RecordBatch], None] = lambda _name, _rows: None) -> None:
    """Decode bronze and then silver."""
    for found in blocks(data, segment_base=0):
        records = found.rows("cluster", TOPIC, 0)
        keep("coordinator_record", records.batch())
        for kind in np.unique(records.types()[0]).tolist():
            table = TYPED[TOPIC, kind]
            keep(table.name, table.decode(records.of_type(kind))[0])


def silver_files(data: bytes) -> None:
    """Decode bronze and silver, and write silver as Parquet."""
    _files(data, {table.name: table.schema for table in TYPED.values()})


def all_files(data: bytes) -> None:
    """Decode bronze and silver, and write both as Parquet."""
    _files(data, {table.name: table.schema for table in TYPED.values()} | {"coordinator_record": BRONZE})


def _files(data: bytes, schemas: dict[str, pa.Schema]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sinks = {name: Sink(folder, schema) for name, schema in schemas.items()}

        def keep(name: str, rows: pa.RecordBatch) -> None:
            if name in sinks:
                sinks[name].write(rows)

        typed(data, keep)
        for name, sink in sinks.items():
            sink.close(lambda _checksum, name=name: f"{name}.parquet")  # type: ignore[misc]


STEPS: tuple[tuple[str, Callable[[bytes], None]], ...] = (
    ("a loop in Python", loop),
    ("bronze", bronze),
    ("bronze and silver", typed),
    ("silver as files", silver_files),
    ("both as files", all_files),
)


def figures(lab: Lab, per_batch: tuple[int, int]) -> list[Figure]:
    """Return records per CPU second of each step, with `per_batch` records per batch."""
    count = lab.of(RECORDS)
    data = segment(count, per_batch=per_batch)
    return [
        Figure(f"{what}, records per CPU s", tuple(_rate(step, data, count) for _ in range(lab.windows.runs)))
        for what, step in STEPS
    ]


def _rate(step: Callable[[bytes], None], data: bytes, count: int) -> float:
    began = time.process_time()
    step(data)
    return count / max(time.process_time() - began, 1e-6)
