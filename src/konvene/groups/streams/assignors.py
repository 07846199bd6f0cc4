"""The task assignor of a streams group, and the configs that it receives.

The assignor is chosen by the first of these that applies:

    the group sets streams.assignor.name     that assignor, if the broker offers it
    the broker sets group.streams.assignors  the first of that list
    otherwise                                highly_available if the topology has state, warm-ups are enabled,
                                             and a member reports task offsets or may do so; else sticky

KIP-1071 leaves the choice to the broker; Apache Kafka 4.4 has only sticky. Both assignors move tasks at once
to members that report no offsets, so clients without reports observe no difference.

The log has warm-up configs only if they differ from Kafka's defaults, the topology has state, and the
assignor is not explicitly sticky. Otherwise targets do not depend on them, and a change does not bump the
epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from konvene.groups.assignors.highly_available import assignor as highly_available
from konvene.groups.assignors.sticky import assignor as sticky
from konvene.groups.assignors.tasks.contract import AssignmentConfigs, TaskAssignor
from konvene.groups.streams.group import Reported
from konvene.groups.streams.topology.topology import Topology
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
"""The built-in task assignors, the default first."""

STICKY, HIGHLY_AVAILABLE = "sticky", "highly_available"

STANDBYS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
WARMUPS, LAG = "num.warmup.replicas", "acceptable.recovery.lag"

KAFKA_DEFAULTS: Final = {WARMUPS: 2, LAG: 10_000}
"""Kafka's defaults of the warm-up configs; values equal to them are not in the log."""


def assignor_of(
    config: Mapping[str, Any],
    context: Context,
    topology: Topology | None,
    reported: Iterable[Reported | None],
) -> TaskAssignor:
    """Return the task assignor of a group.

    `config`: the group's configs. `reported`: each member's last report of task offsets; None if it is
    unknown.
    """
    offered = context.task_assignors or TASK_ASSIGNORS
    named = config["streams.assignor.name"]
    if named is None and _can_warm_up(config, topology, reported):
        named = HIGHLY_AVAILABLE
    return offered.get(named or "") or next(iter(offered.values()))


def _has_state(topology: Topology | None) -> bool:
    return topology is not None and any(map(topology.is_stateful, topology.subtopologies))


def _can_warm_up(
    config: Mapping[str, object], topology: Topology | None, reported: Iterable[Reported | None]
) -> bool:
    """Return whether warm-ups are enabled, the topology has state, and a member reports offsets or may."""
    if config["streams.num.warmup.replicas"] == 0 or not _has_state(topology):
        return False
    return any(report is None or report.reports for report in reported)


def assignment_configs(config: Mapping[str, Any], topology: Topology | None) -> dict[str, str]:
    """Return the configs on which targets depend, in the form in which the log has them."""
    found = {STANDBYS: str(config["streams.num.standby.replicas"])}
    if config["streams.rack.aware.assignment.tags"]:
        found[TAGS] = ",".join(config["streams.rack.aware.assignment.tags"])
    if config["streams.assignor.name"] != STICKY and _has_state(topology):
        own = {name: config[f"streams.{name}"] for name in KAFKA_DEFAULTS}
        found |= {name: str(value) for name, value in own.items() if value != KAFKA_DEFAULTS[name]}
    return found


def read_configs(kept: Mapping[str, str]) -> AssignmentConfigs:
    """Return the configs for the assignor from those in the log, which omits defaults."""
    tags = tuple(tag for tag in kept.get(TAGS, "").split(",") if tag)
    warmups, lag = (int(kept.get(name, default)) for name, default in KAFKA_DEFAULTS.items())
    return AssignmentConfigs(int(kept.get(STANDBYS, "0")), tags, warmups, lag)
