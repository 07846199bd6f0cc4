"""Which parts of a coordinator's log are whole, and which have lost records to the cleaner."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "log_span",
    "bronze",
    "Which offsets of a coordinator's log were read, and what they are worth: of a compacted span only the "
    "last "
    "record of each key may be left, so no story can be told from it.",
    (
        *WHERE,
        Column("first_offset", pa.int64(), "The first offset of the span."),
        Column("last_offset", pa.int64(), "The last one."),
        Column("kind", pa.string(), "`whole`: nothing is missing; `compacted`: offsets are missing in it; "
               "`missing`: nothing of it is there."),
        Column("records", pa.int64(), "So many records are left."),
    ),
    key=("cluster", "topic", "partition", "first_offset"),
)  # fmt: skip
