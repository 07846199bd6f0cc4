"""Caches the placement costs of streams groups' target assignments.

A cost measures how well the copies of tasks are spread over client tags and racks. Computing it visits all
copies of all tasks, some ten milliseconds for ten thousand of them, so it is cached until the target changes.
"""

from __future__ import annotations

from konvene.groups.assignors.tasks.racks import Cost
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.racks import group_cost

__all__ = ["PlacementCosts"]


class PlacementCosts:
    """A cache of placement costs by group id."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[tuple[object, ...], Cost | None]] = {}

    def __repr__(self) -> str:
        return f"<costs of {len(self._cached)} groups>"

    def of(self, group: StreamsGroup) -> Cost | None:
        """Return the cost of a group's target; None if its members have neither tags nor racks."""
        cache_key = (
            group.epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.soft.configured,
            group.soft.hashed_topics,
        )  # fmt: skip
        cached = self._cached.get(group.group_id)
        if cached is None or cached[0] != cache_key:
            cached = self._cached[group.group_id] = cache_key, group_cost(group)
        return cached[1]

    def forget(self, group_id: str) -> None:
        """Remove the cached cost of a deleted group."""
        self._cached.pop(group_id, None)
