"""The states and types of groups, in Kafka's words, as ListGroups and the descriptions of groups give them.

They are words: a broker that is newer than this client may know more of them, and what it says is handed on
as it came. Kafka 4.4 finds streams groups that are NotReady by `not_ready` alone: see `spellings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["STATES_OF", "GroupState", "GroupType", "spellings"]


class GroupState(StrEnum):
    """In the order in which people look for them."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    """A streams group whose topology cannot run: topics are missing, or do not fit each other."""
    DEAD = "Dead"


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


_EVERY = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD})
_ASSIGNED = _EVERY | {GroupState.ASSIGNING, GroupState.RECONCILING}

STATES_OF = {
    GroupType.CLASSIC: _EVERY | {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE},
    GroupType.CONSUMER: _ASSIGNED,
    GroupType.SHARE: _EVERY,
    GroupType.STREAMS: _ASSIGNED | {GroupState.NOT_READY},
}
"""Which states a group of a type can be in. Streams groups have none of the classic protocol's."""


def spellings(states: Iterable[str]) -> tuple[str, ...]:
    """What a filter has to ask for, so that every broker finds groups in these states."""
    asked = []
    for state in states:
        asked.append(str(state))
        if state == GroupState.NOT_READY:
            asked.append("not_ready")
    return tuple(asked)
