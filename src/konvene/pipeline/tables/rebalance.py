"""Defines `rebalance`: cause, duration, moved units, and time without an owner, for each rebalance."""

import pyarrow as pa

from konvene.pipeline.tables.audit_event import CAUSE
from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "rebalance",
    "gold",
    "One row for each generation of a classic group and each epoch of the other groups, from its start "
    "until every member reached its target assignment or the next epoch superseded it.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("protocol_type", pa.string(), "The protocol type of a classic group, such as `consumer` or "
               "`connect`; null for other groups.", nullable=True),
        Column("from_epoch", pa.int32(), "The epoch (generation) before; -1 if unknown. Generations in "
               "between were superseded before they were stored; the row has their causes as well."),
        Column("to_epoch", pa.int32(), "The resulting epoch (generation)."),
        Column("state", pa.string(), "The resulting state: `Stable`, `Empty`, `NotReady`; `Assigning` or "
               "`Reconciling` if the log ends first or the next epoch came; `Superseded` for a generation "
               "that ended before any assignment was sent; `Unknown` if no record of it is left."),
        Column("cause", pa.string(), "The strongest cause, as in `konvene.shard.causes`. If the log does "
               "not distinguish several, all of them, such as `member-left|session-expired`."),
        Column("member_id", pa.string(), "The member that triggered it.", nullable=True),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("client_host", pa.string(), "Its host.", nullable=True),
        Column("reason", pa.string(), "The reason that the client gave.", nullable=True),
        Column("cause_topic", pa.string(), "The topic that changed.", nullable=True),
        Column("causes", pa.list_(pa.field("element", CAUSE, nullable=False)), "All causes, strongest "
               "first."),
        Column("causes_left_out", pa.int32(), "Number of causes left out."),
        EVIDENCE,
        Column("start_ms", pa.int64(), "When it began: when the group left its previous state, or its "
               "epoch was bumped.", nullable=True),
        Column("target_ms", pa.int64(), "When all members had joined and the generation was created; when "
               "the target assignment of the epoch was computed.", nullable=True),
        Column("end_ms", pa.int64(), "When every member had reached its target assignment; for a "
               "superseded one, when the next epoch came.", nullable=True),
        Column("duration_ms", pa.int64(), "The time between start and end.", nullable=True),
        Column("converged", pa.bool_(), "Whether it completed before the next one."),
        Column("superseded_by", pa.int32(), "The epoch that came before it completed.", nullable=True),
        Column("members", pa.int32(), "Number of members at the end. If the evidence is `missing` it is 0, "
               "like all counts: they are unknown."),
        Column("joined", pa.int32(), "Members that joined."),
        Column("gone", pa.int32(), "Members that departed."),
        Column("units", pa.int32(), "Partitions (active tasks; connectors and tasks) that members own at "
               "the end. In a share group a partition counts once for each member that it is assigned to, "
               "here and below."),
        Column("kept", pa.int32(), "Units with the same owner as before."),
        Column("moved", pa.int32(), "Units that another member owned before, or owned last; in a share "
               "group at most as many as others lost."),
        Column("revoked", pa.int32(), "Units that a member owned before and does not own at the end."),
        Column("added", pa.int32(), "Units without an owner before; in a share group, additional members "
               "of a partition."),
        Column("standby_moved", pa.int32(), "Standby tasks that are new for their member."),
        Column("warmup_moved", pa.int32(), "Warm-up tasks that are new for their member."),
        Column("least_moves", pa.int32(), "The smallest number of moves after which each member could own "
               "as many units as it does."),
        Column("churn_ratio", pa.float64(), "`moved` divided by the units owned before, including those "
               "that had just been revoked.", nullable=True),
        Column("unavailable_ms", pa.int64(), "Total time for which partitions (active tasks) had no owner "
               "because of it.", nullable=True),
        Column("silent_units", pa.int32(), "Number of partitions (active tasks) whose owner departed because "
               "its session expired, or may have expired: it may have stopped reading before."),
        Column("silent_ms", pa.int64(), "At most this long in total they had no reader before the "
               "rebalance began: for each the session timeout, or the time since it was assigned. A bound, "
               "since no log records heartbeats; null if the session timeout is unknown.", nullable=True),
        Column("session_timeout_ms", pa.int64(), "Session timeout of these owners, the longest; null if it "
               "is unknown, or if there are none.", nullable=True),
        Column("last_member_id", pa.string(), "The member that the group waited for: the last one to reach "
               "its target assignment.",
               nullable=True),
        Column("log_partition", pa.int32(), "The partition of `__consumer_offsets`."),
        Column("base_offset", pa.int64(), "Offset of its first record."),
        Column("last_offset", pa.int64(), "Offset of the record with which it ended."),
        Column(
            "audit_offset", pa.int64(), "Offset of the audit row that explains it; -1 if there is none."
        ),
    ),
    key=("cluster", "group_id", "log_partition", "base_offset", "to_epoch", "audit_offset"),
)  # fmt: skip
