"""Defines `pipeline_run`: a row for each ingest and each build."""

import pyarrow as pa

from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "pipeline_run",
    "gold",
    "One row for each run of a step: what it read and wrote. It is not part of a run's result: repeating a "
    "run changes no other table.",
    (
        Column("run_id", pa.string(), "Id of the run."),
        Column("step", pa.string(), "`ingest`, `build` or `optimize`."),
        Column("started_ms", pa.int64(), "When it began."),
        Column("ended_ms", pa.int64(), "When it was committed."),
        Column("engine", pa.string(), "`local` or `spark`."),
        Column("files", pa.int32(), "Number of files written."),
        Column("rows", pa.int64(), "Number of rows written."),
        Column("bytes", pa.int64(), "Number of bytes written."),
        Column("version", pa.string(), "The version of konvene."),
    ),
    key=("run_id",),
)
