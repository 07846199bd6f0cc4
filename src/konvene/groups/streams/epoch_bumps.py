"""What a streams group's targets rest on, checked with each heartbeat.

The epoch moves, at most once a decision, if any of this is not what it was: whether all topics of the
topology are there and fit (`resolving`), the settings that the log keeps, how far warm-up tasks are. What a
member says of itself and brings as topology comes before, in `heartbeat` and `classic`.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.groups.assignors.tasks.lags import Task
from konvene.groups.streams.assignors import assignment_configs
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Member
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.resolution import update_validated_epoch
from konvene.groups.streams.topology.topology import Topology
from konvene.groups.streams.warmups import warmups_change
from konvene.shard import causes


def maybe_bump_epoch(
    decision: Decision,
    member: Member,
    topology: Topology,
    configured: ConfiguredTopology,
    told: Iterable[Task],
    *,
    changed: bool,
) -> None:
    """Move the epoch if something is not what it was, or if it has to move anyway (`changed`).

    `told`: the tasks of which the member says how far they are."""
    changed |= update_validated_epoch(decision, topology, configured)
    decision.assignment_configs = assignment_configs(decision.config, topology)
    if decision.assignment_configs != decision.group.assignment_configs and not changed:
        decision.cause(causes.ASSIGNMENT_CONFIGS_CHANGED)
        changed = True
    if not changed and configured.is_ready and warmups_change(decision, member, told):
        changed = True
    if changed:
        decision.bump()
