"""States and types of groups, under the names of ListGroups and of group descriptions.

States are strings: a newer broker may report states that this client does not know, and they are passed on
unchanged. Kafka 4.4 finds NotReady streams groups only with the filter `not_ready`; `state_filter` adds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["STATES_OF", "GroupState", "GroupType", "state_filter"]


class GroupState(StrEnum):
    """States of groups of all types."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    """A streams group whose topics are missing or incorrectly partitioned."""
    DEAD = "Dead"


class GroupType(StrEnum):
    """Types of groups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


_COMMON = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD})
_RECONCILED = _COMMON | {GroupState.ASSIGNING, GroupState.RECONCILING}

STATES_OF = {
    GroupType.CLASSIC: _COMMON | {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE},
    GroupType.CONSUMER: _RECONCILED,
    GroupType.SHARE: _COMMON,
    GroupType.STREAMS: _RECONCILED | {GroupState.NOT_READY},
}
"""States that a group of a type can be in."""


def state_filter(states: Iterable[str]) -> tuple[str, ...]:
    """Return the filter values with which every broker finds groups in these states."""
    values = []
    for state in states:
        values.append(str(state))
        if state == GroupState.NOT_READY:
            values.append("not_ready")
    return tuple(values)
