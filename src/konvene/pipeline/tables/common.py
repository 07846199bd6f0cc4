"""Columns and types that many tables share."""

from __future__ import annotations

import pyarrow as pa

from konvene.pipeline.tables.table import Column

__all__ = ["CLUSTER", "EVIDENCE", "GROUP", "GROUP_TYPE", "UNIT", "WHERE", "strings"]

strings = pa.list_(pa.field("element", pa.string(), nullable=False))

CLUSTER = Column("cluster", pa.string(), "The cluster's id, or the name that was given to the input.")
WHERE = (
    CLUSTER,
    Column("topic", pa.string(), "The log's topic, such as `__consumer_offsets`."),
    Column("partition", pa.int32(), "The log's partition."),
)
GROUP = Column("group_id", pa.string(), "The group.")
GROUP_TYPE = Column("group_type", pa.string(), "`classic`, `consumer`, `share` or `streams`.")
EVIDENCE = Column(
    "evidence",
    pa.string(),
    "`observed`: the coordinator said so itself (the audit, or the very record); `inferred`: it follows from "
    "what the log says; `missing`: the log must have said it once and does not any more.",
)
UNIT = (
    Column("topic", pa.string(), "The topic, its id where its name is not known; of a task its subtopology."),
    Column("partition", pa.int32(), "The partition; of a task likewise."),
    Column(
        "role",
        pa.string(),
        "`active`, of a task also `standby` or `warmup`; `shared` of a partition of a "
        "share group, which others may have at the same time.",
    ),
)
"""What a member can have: a partition of a topic, or a task of a subtopology."""
