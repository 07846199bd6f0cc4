"""Defines `audit_event`: the records of the audit topic, one row each."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP, GROUP_TYPE
from konvene.pipeline.tables.table import Column, Table

_text = pa.string()
CAUSE = pa.struct(
    [
        pa.field("kind", _text, nullable=False),
        pa.field("at_ms", pa.int64(), nullable=False),
        pa.field("member_id", _text),
        pa.field("instance_id", _text),
        pa.field("client_id", _text),
        pa.field("client_host", _text),
        pa.field("reason", _text),
        pa.field("topic", _text),
    ]
)
"""One cause of a rebalance, and the member concerned: `records.audit.Cause`."""
MEMBER = pa.struct(
    [
        pa.field("member_id", _text, nullable=False),
        pa.field("instance_id", _text),
        pa.field("client_id", _text, nullable=False),
        pa.field("client_host", _text, nullable=False),
        pa.field("joined_ms", pa.int64(), nullable=False),
    ]
)
"""`records.audit.RebalancedMember`."""

TABLE = Table(
    "audit_event",
    "bronze",
    "The rows of `__konvene_audit`, which a konvene broker writes beside Kafka's logs.",
    (
        CLUSTER,
        Column("audit_partition", pa.int32(), "The partition of `__konvene_audit`."),
        Column("audit_offset", pa.int64(), "The offset of the row in it."),
        Column("timestamp_ms", pa.int64(), "When the row was written."),
        GROUP,
        GROUP_TYPE,
        Column("epoch", pa.int32(), "The generation of a classic group, the group epoch of the others."),
        Column("state", _text, "The resulting state of the group: `Stable`, `Empty`, `Assigning`, "
               "`NotReady`, `Superseded`."),
        Column("started_ms", pa.int64(), "When it began; -1 if unknown, as for all times here."),
        Column("joined_ms", pa.int64(), "When all members had joined, or the target assignment was "
               "computed."),
        Column("ended_ms", pa.int64(), "When the group reached that state."),
        Column("partition", pa.int32(), "The partition of `__consumer_offsets` that the row explains."),
        Column("base_offset", pa.int64(), "The first offset there that it explains."),
        Column("last_offset", pa.int64(), "The last offset there that it explains."),
        Column("inferred", pa.bool_(), "Whether the coordinator derived the row from its log after a "
               "crash."),
        Column("protocol", _text, "The protocol of a classic group.", nullable=True),
        Column("leader", _text, "The leader of a classic group.", nullable=True),
        Column("causes", pa.list_(pa.field("element", CAUSE, nullable=False)), "The causes, strongest "
               "first."),
        Column("causes_left_out", pa.int32(), "Number of causes left out."),
        Column("members", pa.list_(pa.field("element", MEMBER, nullable=False)), "The members of the "
               "resulting generation or epoch."),
        Column("members_left_out", pa.int32(), "Number of members left out."),
        Column("moved", pa.list_(pa.field("element", pa.int32(), nullable=False)),
               "For a streams group: number of moved tasks, by role."),
        Column("session_timeout_ms", pa.int64(), "Session timeout of a consumer, share or streams group in "
               "which a session expired; -1 otherwise."),
    ),
    key=("cluster", "audit_partition", "audit_offset"),
)  # fmt: skip
