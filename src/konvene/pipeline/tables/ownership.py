"""Defines `ownership`: owners of partitions and tasks over time."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, UNIT
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "ownership",
    "gold",
    "One interval for each partition or task that a member owned, in each role.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        *UNIT,
        Column("member_id", pa.string(), "The owner."),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("from_ms", pa.int64(), "Time of the record that assigned it."),
        Column(
            "to_ms",
            pa.int64(),
            "Time of the record that revoked it; null while the member owns it.",
            nullable=True,
        ),
        Column("from_epoch", pa.int32(), "The epoch (generation) of the group at the start."),
        Column("to_epoch", pa.int32(), "The epoch (generation) of the group at the end.", nullable=True),
        Column("log_partition", pa.int32(), "The partition of `__consumer_offsets`."),
        Column("from_offset", pa.int64(), "Offset of the record that assigned it."),
        Column("to_offset", pa.int64(), "Offset of the record that revoked it.", nullable=True),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "topic", "partition", "role", "member_id", "from_offset"),
)
