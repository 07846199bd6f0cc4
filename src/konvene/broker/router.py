"""Which APIs the broker serves, and in which file each is answered.

What ApiVersions advertises is read off this table. A file is imported when its API is first used. A protocol
that is switched off stays in the table: its requests are answered UNSUPPORTED_VERSION, as by Kafka. What is
answered and not advertised stands in a table of its own besides.
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
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "delegation_tokens",
    39: "delegation_tokens",
    40: "delegation_tokens",
    41: "delegation_tokens",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    50: "describe_user_scram_credentials",
    55: "describe_quorum",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    71: "telemetry",
    72: "telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "switched_off",
    77: "switched_off",
    88: "streams_group_heartbeat",
    89: "streams_group_describe",
    93: "streams_group_topology_description_update",
}

UNADVERTISED = frozenset((71, 72))
"""Answered, and not told by ApiVersions: telemetry, which nobody here receives."""
