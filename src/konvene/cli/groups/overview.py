"""Output of `konvene groups describe` that all group types have in common: coordinator, state and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.client.admin.any_group import AnyGroup

__all__ = ["coordinator_cell", "group_document"]


def coordinator_cell(group: AnyGroup) -> str:
    """Return the text for the column `COORDINATOR (ID)`."""
    coordinator = group.coordinator
    return f"{coordinator.host}:{coordinator.port} ({coordinator.id})"


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
    }
