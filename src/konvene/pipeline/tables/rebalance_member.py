"""Defines `rebalance_member`: what a rebalance changed for each of its members."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, strings
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "rebalance_member",
    "gold",
    "One row for each member of a rebalance: how long it took to converge, and which members it waited "
    "for.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("to_epoch", pa.int32(), "Epoch (generation) of the rebalance."),
        Column("log_partition", pa.int32(), "Log partition of the rebalance."),
        Column("base_offset", pa.int64(), "First record of the rebalance."),
        Column("member_id", pa.string(), "The member."),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("client_host", pa.string(), "Its host.", nullable=True),
        Column("part", pa.string(), "`joined`, `stayed` or `gone`."),
        Column("acknowledged_ms", pa.int64(), "Time from the start until it reached its target assignment, "
               "or had rejoined.", nullable=True),
        Column("states", strings, "Its states, in order: `UNREVOKED_PARTITIONS`, `UNRELEASED_PARTITIONS`, "
               "`STABLE` and so on."),
        Column("waited_for", strings, "The members that still owned units of its target."),
        Column("units_before", pa.int32(), "Partitions (active tasks) that it owned before."),
        Column("units_after", pa.int32(), "Partitions (active tasks) that it owns at the end."),
        Column("revoked", pa.int32(), "Number of units that it revoked."),
        Column("added", pa.int32(), "Number of units that were assigned to it."),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "log_partition", "base_offset", "member_id"),
)  # fmt: skip
