"""Metrics of the placement costs of streams groups.

A cost is computed when a group's target changes (`PlacementCosts`). Groups with neither tags nor racks have
no line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konvene.broker.metrics.tables.broker import GAUGE, Lines, Metric, Snapshot
from konvene.groups.assignors.tasks.racks import Cost

COUNTED: Final[tuple[tuple[str, Callable[[Cost], int]], ...]] = (
    ("active-outside-rack", lambda cost: cost.actives_outside),
    ("copy-outside-rack", lambda cost: cost.copies_outside),
    ("pair-sharing-all-tags", lambda cost: cost.pairs_sharing_all),
    ("pair-sharing-some-tags", lambda cost: cost.pairs_sharing_some),
    ("task-not-apart", lambda cost: cost.tasks_with_copies - cost.tasks_apart),
)
"""Values of the label `cost`, each with the function that reads it from a `Cost`."""


def _costs(snapshot: Snapshot) -> Lines:
    for group, cost in sorted(snapshot.gauges.costs.items()):
        for name, count in COUNTED:
            yield (group, name), count(cost)


OURS_OF_STREAMS: Final[tuple[Metric, ...]] = (
    Metric("konvene_streams_group_placement_cost", GAUGE,
           "Placement cost of a streams group's target assignment, 0 is best: active tasks and copies "
           "outside the racks of their partitions, pairs of copies of a task with the same value of all or "
           "some tags, and tasks whose copies do not differ in every tag.",
           _costs, ("group", "cost")),
)  # fmt: skip
