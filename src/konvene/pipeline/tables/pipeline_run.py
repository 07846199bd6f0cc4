"""What the pipeline did and when."""

import pyarrow as pa

from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "pipeline_run",
    "gold",
    "One row for each run of a step: what it read and wrote. It is kept in the manifest and is not part of "
    "what "
    "a run makes: to run again changes no other table.",
    (
        Column("run_id", pa.string(), "The run."),
        Column("step", pa.string(), "`ingest` or `build`."),
        Column("started_ms", pa.int64(), "When it began."),
        Column("ended_ms", pa.int64(), "When its manifest was there."),
        Column("engine", pa.string(), "`local` or `spark`."),
        Column("files", pa.int32(), "Files that it wrote."),
        Column("rows", pa.int64(), "Rows that it wrote."),
        Column("bytes", pa.int64(), "Bytes that it wrote."),
        Column("version", pa.string(), "The version of konvene."),
    ),
    key=("run_id",),
)
