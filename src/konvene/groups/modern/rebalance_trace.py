"""The story of a rebalance under way, in a group whose coordinator assigns: what it began with, and why.

It is kept beside the log, in what a group knows that a restart may forget. When all members have what they
are meant to have it is told, as a row of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from konvene.records.audit import Cause

MOST_CAUSES = 100
"""So many causes of one rebalance are told; of the others, how many."""


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """What is to be told of a rebalance under way."""

    started_ms: int
    causes: tuple[Cause, ...] = ()
    causes_left_out: int = 0
    targeted_ms: int = -1
    """When the latest target was computed."""
    moved: tuple[int, ...] = ()
    """How much the targets since have moved, in each role; empty: that is not counted."""

    def with_causes(self, causes: Sequence[Cause]) -> RebalanceTrace:
        """With more of them, as long as there is room."""
        room = max(MOST_CAUSES - len(self.causes), 0)
        left_out = self.causes_left_out + max(len(causes) - room, 0)
        return replace(self, causes=(*self.causes, *causes[:room]), causes_left_out=left_out)


@dataclass(frozen=True, slots=True)
class SoftStateRecord:
    """The soft record of a group whose coordinator assigns."""

    group_id: str
    soft: Any
    """What such a group knows beside its log: a value of its kind, with a `story`."""
    reached_ms: Mapping[str, int] = field(default_factory=dict)
    """Who came to the target, and when."""
    reported: Mapping[str, Any] = field(default_factory=dict)
    """What members say of how far they have come, in a streams group; None of who is gone."""


def apply_soft_state(group: Any, record: SoftStateRecord) -> None:
    """What the group keeps beside the log is now this."""
    before, after = group.soft.story, record.soft.story
    group.soft = record.soft
    if after is None or before is None or before.targeted_ms != after.targeted_ms:
        group.reached_ms.clear()
    group.reached_ms.update(record.reached_ms)
    for member_id, said in record.reported.items():
        if said is None:
            group.reported.pop(member_id, None)
        else:
            group.reported[member_id] = said
