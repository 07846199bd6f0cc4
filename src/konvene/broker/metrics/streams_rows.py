"""What the targets of streams groups cost by tags and racks.

Counting goes over all copies of all tasks, some ten milliseconds for ten thousand of them, so the answer is
kept until the group has another target. Groups that have neither tags configured nor racks have no line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from konvene.broker.metrics.rows import GAUGE, Lines, Metric, Seen
from konvene.groups.assignors.task_racks import Cost
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.racks import group_cost


class Costs:
    """What the targets of groups cost, as last counted."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[Any, ...], Cost | None]] = {}

    def __repr__(self) -> str:
        return f"<costs of {len(self._known)} groups>"

    def of(self, group: StreamsGroup) -> Cost | None:
        """That of a group; None where there is nothing to count."""
        basis = (
            group.epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.soft.configured,
            group.soft.seen,
        )  # fmt: skip
        known = self._known.get(group.group_id)
        if known is None or known[0] != basis:
            known = self._known[group.group_id] = basis, group_cost(group)
        return known[1]

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._known.pop(group_id, None)


COUNTED: Final[tuple[tuple[str, Callable[[Cost], int]], ...]] = (
    ("active-outside-rack", lambda cost: cost.actives_outside),
    ("copy-outside-rack", lambda cost: cost.copies_outside),
    ("pair-sharing-all-tags", lambda cost: cost.pairs_sharing_all),
    ("pair-sharing-some-tags", lambda cost: cost.pairs_sharing_some),
    ("task-not-apart", lambda cost: cost.tasks_with_copies - cost.tasks_apart),
)
"""The values of the label `cost`."""


def _costs(seen: Seen) -> Lines:
    for group, cost in sorted(seen.census.costs.items()):
        for name, count in COUNTED:
            yield (group, name), count(cost)


OURS_OF_STREAMS: Final[tuple[Metric, ...]] = (
    Metric("konvene_streams_group_placement_cost", GAUGE,
           "What a streams group's target costs by racks and tags, 0 being best: active tasks, and copies, "
           "at members outside the racks of what they read; pairs of copies of one task on the same value of "
           "all tags, or of some; tasks with copies that are not known to be apart on every tag.",
           _costs, ("group", "cost")),
)  # fmt: skip
