"""Defines `lag`: committed offsets of groups and how far they are behind the log end, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "lag",
    "gold",
    "One row for each minute in which a group committed an offset of a partition: the committed offset and "
    "the log end. Without logs of user topics only the former is known. For a share group the start "
    "offset of a share partition stands for the committed offset, whenever its state was written.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("minute_ms", pa.int64(), "Start of the minute."),
        Column("committed_offset", pa.int64(), "The last offset committed in it."),
        Column("commit_ms", pa.int64(), "When it was committed."),
        Column("commits", pa.int32(), "Number of commits in the minute; those of a transaction count when "
               "it commits."),
        Column("advanced", pa.int64(), "Difference to the committed offset of the previous row; negative "
               "after a reset. Null for the first row, and for the first one after a tombstone.",
               nullable=True),
        Column("log_end_offset", pa.int64(), "The log end at the end of the minute, as far as known from "
               "the stretches that had ended.", nullable=True),
        Column("lag", pa.int64(), "Log end minus committed offset, in records; for a share group without "
               "the records known to be completed.", nullable=True),
        Column("time_lag_ms", pa.int64(), "Age of the oldest uncommitted record at the end of the minute, "
               "as a lower bound; 0 without lag.", nullable=True),
        Column(EVIDENCE.name, EVIDENCE.type, "`observed`: known from records and batch headers; "
               "`inferred`: the log may have grown further within the minute, or the age is uncertain by "
               "more than a minute; `missing`: compaction removed commits, or retention removed batches."),
    ),
    key=("cluster", "group_id", "topic", "partition", "minute_ms"),
)  # fmt: skip
