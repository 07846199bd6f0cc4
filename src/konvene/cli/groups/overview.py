"""Output of `konvene groups describe` that all group types have in common: coordinator, state and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.client.admin.any_group import AnyGroup
    from konvene.client.admin.heartbeats import Heartbeats

__all__ = [
    "coordinator_cell",
    "group_document",
    "heartbeat_cells",
    "heartbeat_columns",
    "heartbeats_document",
]


def coordinator_cell(group: AnyGroup) -> str:
    """Return the text for the column `COORDINATOR (ID)`."""
    coordinator = group.coordinator
    return f"{coordinator.host}:{coordinator.port} ({coordinator.id})"


def heartbeat_columns(group: AnyGroup) -> list[str]:
    """Return the columns of the members' heartbeat statistics; none if the broker did not report them."""
    return ["HEARTBEAT-MS", "HELD", "HEARTBEAT-AGE-MS"] if group.heartbeat_policy else []


def heartbeat_cells(group: AnyGroup, heartbeats: Heartbeats | None) -> list[object]:
    """Return the cells of `heartbeat_columns` for one member."""
    return list(heartbeats or (None, None, None)) if group.heartbeat_policy else []


def heartbeats_document(heartbeats: Heartbeats | None) -> dict[str, object]:
    """Return the field of a member's JSON document with its heartbeat statistics, if there are any."""
    return {} if heartbeats is None else {"heartbeats": heartbeats._asdict()}


def group_document(group: AnyGroup, **epochs: int | None) -> dict[str, object]:
    """Return the fields that the JSON documents of all group types have, with the additional `epochs` of one
    type, such as `topology_epoch`."""
    coordinator = group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        **epochs,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "member_count": len(group.members),
        **({"heartbeat_policy": group.heartbeat_policy} if group.heartbeat_policy else {}),
    }
