"""How the tasks in a streams group's target assignment are spread over racks and client tags.

Only a konvene broker reports it, and only for groups with client tags or racks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription

__all__ = ["describe_placement", "placement_document"]


def describe_placement(group: StreamsGroupDescription) -> list[str]:
    """Return lines about how the copies of tasks are spread over client tags and racks; none if the broker
    does not report that."""
    placement = group.placement
    if placement is None:
        return []
    lines = []
    if placement.tags:
        lines.append(
            f"tasks whose copies are spread by {', '.join(placement.tags)}: {placement.tasks_apart} of "
            f"{placement.tasks_with_copies}"
        )
        pairs = (placement.pairs_sharing_all, "all tags"), (placement.pairs_sharing_some, "some tags")
        shared = [f"{count} {'pair' if count == 1 else 'pairs'} ({what})" for count, what in pairs if count]
        if shared:
            lines.append(f"copies of one task on members with equal tags: {', '.join(shared)}")
    if placement.actives_outside or placement.copies_outside:
        lines.append(
            f"tasks outside the racks of their input partitions: {placement.actives_outside} active, "
            f"{placement.copies_outside} standby or warm-up"
        )
    return lines


def placement_document(group: StreamsGroupDescription) -> dict[str, object] | None:
    """Return the counts that the broker reports as a JSON document; None if it reports none."""
    if group.placement is None:
        return None
    return group.placement._asdict() | {"tags": list(group.placement.tags)}
