"""Names of the columns of the rows that `PartitionReducer.drain` returns, in their order.

The tables' definitions (`konvene.pipeline.tables`) also have types and meanings, but need Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COLUMNS"]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "rebalance": (
        "cluster", "group_id", "group_type", "protocol_type", "from_epoch", "to_epoch", "state",
        "cause", "member_id",
        "instance_id", "client_id", "client_host", "reason", "cause_topic", "causes", "causes_left_out",
        "evidence", "start_ms", "target_ms", "end_ms", "duration_ms", "converged", "superseded_by", "members",
        "joined", "gone", "units", "kept", "moved", "revoked", "added", "standby_moved", "warmup_moved",
        "least_moves", "churn_ratio", "unavailable_ms", "silent_units", "silent_ms", "session_timeout_ms",
        "last_member_id", "log_partition", "base_offset", "last_offset", "audit_offset",
    ),
    "rebalance_member": (
        "cluster", "group_id", "group_type", "to_epoch", "log_partition", "base_offset", "member_id",
        "instance_id", "client_id", "client_host", "part", "acknowledged_ms", "states", "waited_for",
        "units_before", "units_after", "revoked", "added", "evidence",
    ),
    "ownership": (
        "cluster", "group_id", "group_type", "topic", "partition", "role", "member_id", "instance_id",
        "client_id", "from_ms", "to_ms", "from_epoch", "to_epoch", "log_partition", "from_offset",
        "to_offset", "evidence",
    ),
    "unavailability": (
        "cluster", "group_id", "group_type", "topic", "partition", "role", "from_ms", "to_ms", "gap_ms",
        "from_member_id", "to_member_id", "epoch", "log_partition", "base_offset", "cause", "left_open_by",
        "evidence",
    ),
}  # fmt: skip
"""The columns of each of the four tables."""
