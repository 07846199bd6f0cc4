"""What a rebalance was for each member."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, strings
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "rebalance_member",
    "gold",
    "One row for each member of a rebalance: how long it took to follow, and whom it waited for.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("to_epoch", pa.int32(), "The rebalance: its epoch,"),
        Column("log_partition", pa.int32(), "its partition,"),
        Column("base_offset", pa.int64(), "and its first record."),
        Column("member_id", pa.string(), "The member."),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("client_host", pa.string(), "Its host.", nullable=True),
        Column("part", pa.string(), "`joined`, `stayed` or `gone`."),
        Column("acknowledged_ms", pa.int64(), "From the start until it had what it was to have, or had "
               "joined "
               "again.", nullable=True),
        Column("states", strings, "The states that it passed through, in order: `UNREVOKED_PARTITIONS`, "
               "`UNRELEASED_PARTITIONS`, `STABLE` and so on."),
        Column("waited_for", strings, "The members that had what it was to have."),
        Column("units_before", pa.int32(), "Partitions (active tasks) that it had before,"),
        Column("units_after", pa.int32(), "and has at the end."),
        Column("revoked", pa.int32(), "How many it gave up."),
        Column("added", pa.int32(), "How many it was given."),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "log_partition", "base_offset", "member_id"),
)  # fmt: skip
