"""How far groups were behind, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "lag",
    "gold",
    "One row for each minute in which a group committed an offset of a partition: where it was, and where "
    "the log "
    "was. Without logs of users' topics only the first half is known. In a share group the start offset of a "
    "share partition is what was committed, whenever its state was written.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("minute_ms", pa.int64(), "When the minute begins."),
        Column("committed_offset", pa.int64(), "The last offset committed in it."),
        Column("commit_ms", pa.int64(), "When that was."),
        Column("commits", pa.int32(), "How many commits there were in it; those of a transaction count when "
               "it commits."),
        Column("advanced", pa.int64(), "By how much the commits moved since the row before; negative when "
               "they were reset. Null for the first row, and for the first one after a tombstone.",
               nullable=True),
        Column("log_end_offset", pa.int64(), "The log's end at the end of the minute, as far as the "
               "stretches tell that are over by then.", nullable=True),
        Column("lag", pa.int64(), "The records between them; in a share group without those that the state "
               "says are done with.", nullable=True),
        Column("time_lag_ms", pa.int64(), "How old the oldest record that was not committed is, at the end "
               "of the minute: at least so much; 0 without lag.", nullable=True),
        Column(EVIDENCE.name, EVIDENCE.type, "`observed`: records and headers of batches say all of it; "
               "`inferred`: the log may have grown further within the minute, or the age is vague by more "
               "than one; `missing`: a cleaner was among the commits, or retention among the batches."),
    ),
    key=("cluster", "group_id", "topic", "partition", "minute_ms"),
)  # fmt: skip
