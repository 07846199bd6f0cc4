"""What a coordinator of ours said about its groups itself."""

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
"""One thing that happened to a group, and to whom: `records.audit.Cause`."""
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
    "The rows of `__konvene_audit`, which a broker of ours writes beside Kafka's logs.",
    (
        CLUSTER,
        Column("audit_partition", pa.int32(), "The partition of `__konvene_audit`."),
        Column("audit_offset", pa.int64(), "Where the row stands in it."),
        Column("timestamp_ms", pa.int64(), "When the row was written."),
        GROUP,
        GROUP_TYPE,
        Column("epoch", pa.int32(), "The generation of a classic group, the group epoch of the others."),
        Column("state", _text, "What the group came to: `Stable`, `Empty`, `Assigning`, `NotReady`, "
               "`Superseded`."),
        Column("started_ms", pa.int64(), "-1 where not known, as in all times here."),
        Column("joined_ms", pa.int64(), "When all members were in, or the target was made."),
        Column("ended_ms", pa.int64(), "When the group had come to that state."),
        Column("partition", pa.int32(), "The partition of `__consumer_offsets` that the row explains."),
        Column("base_offset", pa.int64(), "The first offset there that it explains."),
        Column("last_offset", pa.int64(), "The last."),
        Column("inferred", pa.bool_(), "Whether the coordinator derived it again after a crash."),
        Column("protocol", _text, "Of a classic group.", nullable=True),
        Column("leader", _text, "Of a classic group.", nullable=True),
        Column("causes", pa.list_(pa.field("element", CAUSE, nullable=False)), "Strongest first."),
        Column("causes_left_out", pa.int32(), "How many more there were."),
        Column("members", pa.list_(pa.field("element", MEMBER, nullable=False)), "Who was in what came out."),
        Column("members_left_out", pa.int32(), "How many more there were."),
        Column("moved", pa.list_(pa.field("element", pa.int32(), nullable=False)),
               "Of a streams group: tasks that moved, by role."),
    ),
    key=("cluster", "audit_partition", "audit_offset"),
)  # fmt: skip
