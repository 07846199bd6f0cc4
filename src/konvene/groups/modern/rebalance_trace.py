"""The trace of a rebalance in progress in a consumer, share or streams group: when it started, and why.

It is part of the group's soft state, which is not in the log and is lost by a restart. When all members have
reached their targets, it becomes a record of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from konvene.records.audit import Cause

if TYPE_CHECKING:
    from konvene.groups.modern.group import ModernSoftState

MOST_CAUSES = 100
"""How many causes of one rebalance the audit lists; it counts the others."""


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """A rebalance in progress: its start, its causes, and when its target was computed."""

    started_ms: int
    causes: tuple[Cause, ...] = ()
    causes_left_out: int = 0
    targeted_ms: int = -1
    """When the latest target was computed; -1: not yet."""
    moved: tuple[int, ...] = ()
    """How many tasks changed members with each new target, by role; empty where that is not counted."""

    def with_causes(self, causes: Sequence[Cause]) -> RebalanceTrace:
        """Return the trace with more causes; beyond `MOST_CAUSES` they are only counted."""
        free = max(MOST_CAUSES - len(self.causes), 0)
        left_out = self.causes_left_out + max(len(causes) - free, 0)
        return replace(self, causes=(*self.causes, *causes[:free]), causes_left_out=left_out)


@dataclass(frozen=True, slots=True)
class SoftStateRecord:
    """A change of a group's soft state: replayed like a record, but never written to the log."""

    group_id: str
    soft: ModernSoftState
    """The new soft state: a `SoftState` of the group's type."""
    reached_ms: Mapping[str, int] = field(default_factory=dict)
    """When members reached their target, by member id; only those that this record adds."""
    reported: Mapping[str, object] = field(default_factory=dict)
    """Task offsets that members of a streams group reported, by member id; None removes a member's."""


def apply_soft_state(group: Any, record: SoftStateRecord) -> None:
    """Apply a change of soft state to its group.

    The times at which members reached their target are cleared first if there is a new target, or if the
    rebalance is over."""
    before, after = group.soft.trace, record.soft.trace
    group.soft = record.soft
    if after is None or before is None or before.targeted_ms != after.targeted_ms:
        group.reached_ms.clear()
    group.reached_ms.update(record.reached_ms)
    for member_id, report in record.reported.items():
        if report is None:
            group.reported.pop(member_id, None)
        else:
            group.reported[member_id] = report
