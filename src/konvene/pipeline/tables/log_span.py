"""Defines `log_span`: which offsets of a coordinator's log are complete, and which compaction has thinned."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "log_span",
    "bronze",
    "The offsets of a coordinator's log that were read, and how complete they are: a compacted span may "
    "have only the last record of each key, so no rebalances are derived from it.",
    (
        *WHERE,
        Column("first_offset", pa.int64(), "The first offset of the span."),
        Column("last_offset", pa.int64(), "The last offset of the span."),
        Column("kind", pa.string(), "`whole`: no record is missing; `compacted`: some offsets are missing; "
               "`missing`: all of it is missing."),
        Column("records", pa.int64(), "Number of records left."),
    ),
    key=("cluster", "topic", "partition", "first_offset"),
)  # fmt: skip
