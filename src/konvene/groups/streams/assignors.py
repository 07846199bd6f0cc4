"""Which task assignor a streams group has, and which of its settings assignors are told.

`streams.assignor.name` of the group, if the broker offers it; else the first of `group.streams.assignors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from konvene.groups.assignors import highly_available, sticky
from konvene.groups.assignors.tasks import AssignmentConfigs, TaskAssignor
from konvene.shard.contract import Context

TASK_ASSIGNORS: Final[Mapping[str, TaskAssignor]] = MappingProxyType(
    {
        row.name: row
        for row in (
            TaskAssignor("sticky", sticky.assign),
            TaskAssignor("highly_available", highly_available.assign),
        )
    }
)
"""The built-in ones, the default first."""

STANDBYS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"


def assignor_of(config: Mapping[str, Any], context: Context) -> TaskAssignor:
    """The assignor of a group with these settings."""
    offered = context.task_assignors or TASK_ASSIGNORS
    return offered.get(config["streams.assignor.name"] or "") or next(iter(offered.values()))


def assignment_configs(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings on which a target rests, as the log keeps them."""
    found = {STANDBYS: str(config["streams.num.standby.replicas"])}
    if config["streams.rack.aware.assignment.tags"]:
        found[TAGS] = ",".join(config["streams.rack.aware.assignment.tags"])
    return found


def read_configs(kept: Mapping[str, str]) -> AssignmentConfigs:
    """The same, for the assignor."""
    tags = tuple(tag for tag in kept.get(TAGS, "").split(",") if tag)
    return AssignmentConfigs(int(kept.get(STANDBYS, "0")), tags)
