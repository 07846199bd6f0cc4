"""Where the copies of a streams group's tasks are: how many are apart by tags, how many outside their racks.

Said of the target, as the broker counts it; another broker's groups have nothing to say, nor have groups
without tags and racks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription

__all__ = ["of_places", "places_document"]


def of_places(group: StreamsGroupDescription) -> list[str]:
    """What there is to say of the group, in lines."""
    found = group.placement
    if found is None:
        return []
    told = []
    if found.tags:
        told.append(
            f"tasks whose copies are known to be apart by {', '.join(found.tags)}: {found.tasks_apart} of "
            f"{found.tasks_with_copies}"
        )
        pairs = (found.pairs_sharing_all, "all tags"), (found.pairs_sharing_some, "some tags")
        shares = [f"{count} {_share(count)} {what}" for count, what in pairs if count]
        if shares:
            told.append(f"copies of one task that are not apart: {', '.join(shares)}")
    if found.actives_outside or found.copies_outside:
        told.append(
            f"tasks at members outside the racks of what they read: {found.actives_outside} active, "
            f"{found.copies_outside} standby or warm-up"
        )
    return told


def _share(count: int) -> str:
    return "pair shares" if count == 1 else "pairs share"


def places_document(group: StreamsGroupDescription) -> dict[str, Any] | None:
    """The same with every number."""
    if group.placement is None:
        return None
    return group.placement._asdict() | {"tags": list(group.placement.tags)}
