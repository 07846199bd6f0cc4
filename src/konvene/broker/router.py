"""Which APIs the broker serves, and in which file each is answered.

What ApiVersions advertises is read off this table. A file is imported when its API is first used. A protocol
that is switched off stays in the table: its requests are answered UNSUPPORTED_VERSION, as by Kafka.
"""

from __future__ import annotations

HANDLERS: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    32: "describe_configs",
    33: "alter_configs",
    37: "create_partitions",
    42: "delete_groups",
    44: "incremental_alter_configs",
    47: "offset_delete",
    60: "describe_cluster",
    68: "switched_off",
    69: "switched_off",
    75: "describe_topic_partitions",
    76: "switched_off",
    77: "switched_off",
    88: "switched_off",
    89: "switched_off",
}
