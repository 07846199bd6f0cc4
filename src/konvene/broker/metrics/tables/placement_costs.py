"""What the targets of streams groups cost by tags and racks.

They are counted when the target is another one (`costs`). Groups that have neither tags configured nor racks
have no line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konvene.broker.metrics.tables.broker import GAUGE, Lines, Metric, Seen
from konvene.groups.assignors.tasks.racks import Cost

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
