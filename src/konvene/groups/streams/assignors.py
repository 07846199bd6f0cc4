"""The task assignor of a streams group, and the settings that assignors receive.

    streams.assignor.name of the group               that one, if the broker offers it
    group.streams.assignors, where somebody set it   the first of them
    neither                                          the broker chooses: highly_available where tasks have
                                                     state, warm-ups are allowed, and some member reports how
                                                     far its tasks are, or may; else sticky

KIP-1071 leaves the last to the broker. Apache Kafka 4.4 has sticky alone. Whom nobody can wait for gets tasks
at once from either, so that clients which report nothing find no difference.

Of warm-ups the log keeps only what is not Kafka's default, and that only of tasks with state, unless it is
said that sticky assigns them: else nothing rests on it, and no epoch moves for it.
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
"""The built-in ones, the default first."""

STICKY, HIGHLY_AVAILABLE = "sticky", "highly_available"

STANDBYS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
WARMUPS, LAG = "num.warmup.replicas", "acceptable.recovery.lag"

UNSAID: Final = {WARMUPS: 2, LAG: 10_000}
"""The defaults of settings that the log does not have, as in Kafka."""


def assignor_of(
    config: Mapping[str, Any],
    context: Context,
    topology: Topology | None,
    reported: Iterable[Reported | None],
) -> TaskAssignor:
    """The assignor of a group with these settings. `reported`: what each member says, None where that is not
    known."""
    offered = context.task_assignors or TASK_ASSIGNORS
    named = config["streams.assignor.name"]
    if named is None and _waits(config, topology, reported):
        named = HIGHLY_AVAILABLE
    return offered.get(named or "") or next(iter(offered.values()))


def _has_state(topology: Topology | None) -> bool:
    return topology is not None and any(map(topology.is_stateful, topology.subtopologies))


def _waits(config: Mapping[str, Any], topology: Topology | None, reported: Iterable[Reported | None]) -> bool:
    """Whether the topology has state to restore, and a member may report its progress."""
    if config["streams.num.warmup.replicas"] == 0 or not _has_state(topology):
        return False
    return any(said is None or said.reports for said in reported)


def assignment_configs(config: Mapping[str, Any], topology: Topology | None) -> dict[str, str]:
    """Return the settings that a target rests on, as the log keeps them."""
    found = {STANDBYS: str(config["streams.num.standby.replicas"])}
    if config["streams.rack.aware.assignment.tags"]:
        found[TAGS] = ",".join(config["streams.rack.aware.assignment.tags"])
    if config["streams.assignor.name"] != STICKY and _has_state(topology):
        own = {name: config[f"streams.{name}"] for name in UNSAID}
        found |= {name: str(value) for name, value in own.items() if value != UNSAID[name]}
    return found


def read_configs(kept: Mapping[str, str]) -> AssignmentConfigs:
    """Return these settings for the assignor."""
    tags = tuple(tag for tag in kept.get(TAGS, "").split(",") if tag)
    warmups, lag = (int(kept.get(name, default)) for name, default in UNSAID.items())
    return AssignmentConfigs(int(kept.get(STANDBYS, "0")), tags, warmups, lag)
