"""Every rebalance: who, why, how long, what moved, what stood still."""

import pyarrow as pa

from konvene.pipeline.tables.audit_event import CAUSE
from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "rebalance",
    "gold",
    "One row for each generation of a classic group and each epoch of the others. From its start to the "
    "moment "
    "when every member had what it was to have, or the next one came.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("from_epoch", pa.int32(), "The epoch (generation) before; -1 where it is not known."),
        Column("to_epoch", pa.int32(), "The epoch that came of it."),
        Column("state", pa.string(), "What the group came to: `Stable`, `Empty`, `NotReady`; `Assigning` or "
               "`Reconciling` where the log ends first or the next epoch came; `Superseded` of a generation "
               "that ended before anybody was given anything; `Unknown` where no record is left of it."),
        Column("cause", pa.string(), "The strongest cause, in the words of `konvene.shard.causes`. Where "
               "the log "
               "cannot tell two apart, both, such as `member-left|session-expired`."),
        Column("member_id", pa.string(), "The member that set it off.", nullable=True),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("client_host", pa.string(), "Its host.", nullable=True),
        Column("reason", pa.string(), "The client's own words.", nullable=True),
        Column("cause_topic", pa.string(), "The topic that changed.", nullable=True),
        Column("causes", pa.list_(pa.field("element", CAUSE, nullable=False)), "All causes, strongest "
               "first."),
        Column("causes_left_out", pa.int32(), "How many more there were."),
        EVIDENCE,
        Column("start_ms", pa.int64(), "When it began: when the group left its last state, or its epoch was "
               "raised.", nullable=True),
        Column("target_ms", pa.int64(), "When all had joined and the generation was made; when the target of "
               "the epoch was made.", nullable=True),
        Column("end_ms", pa.int64(), "When every member had what it was to have; of a superseded one, when "
               "the "
               "next came.", nullable=True),
        Column("duration_ms", pa.int64(), "The time between start and end.", nullable=True),
        Column("converged", pa.bool_(), "Whether it came to its end before the next one."),
        Column("superseded_by", pa.int32(), "The epoch that came before it had ended.", nullable=True),
        Column("members", pa.int32(), "How many members the group had at the end. Where the evidence is "
               "`missing` it is 0, as all counts are: nothing is known of them."),
        Column("joined", pa.int32(), "Members that were not there before."),
        Column("gone", pa.int32(), "Members that were there before."),
        Column("units", pa.int32(), "Partitions (active tasks) that members had at the end. In a share group "
               "a partition counts for each member that has it, here and in what follows."),
        Column("kept", pa.int32(), "Those that their member had before: they stood still."),
        Column("moved", pa.int32(), "Those that another member had before, or had had last; in a share group "
               "as many as others gave up."),
        Column("revoked", pa.int32(), "Those that a member had before and has not at the end."),
        Column("added", pa.int32(), "Those that nobody had before; in a share group, that one member more "
               "has than before."),
        Column("standby_moved", pa.int32(), "Standby tasks that a member has and had not before."),
        Column("warmup_moved", pa.int32(), "Warm-up tasks likewise."),
        Column("least_moves", pa.int32(), "How many had to move at least, so that each member could have as "
               "many "
               "as it came to have."),
        Column("churn_ratio", pa.float64(), "`moved` by the units that members had before, or had just given "
               "up.", nullable=True),
        Column("unavailable_ms", pa.int64(), "How long partitions (active tasks) had no owner because of "
               "it, all "
               "together.", nullable=True),
        Column("last_member_id", pa.string(), "Who was waited for: the last to have what it was to have.",
               nullable=True),
        Column("log_partition", pa.int32(), "Where it stands in `__consumer_offsets`: the partition,"),
        Column("base_offset", pa.int64(), "the first record of its beginning,"),
        Column("last_offset", pa.int64(), "and the record with which it ended."),
        Column(
            "audit_offset", pa.int64(), "The row of the audit that says why; -1 where the log has to tell it."
        ),
    ),
    key=("cluster", "group_id", "log_partition", "base_offset", "to_epoch", "audit_offset"),
)  # fmt: skip
