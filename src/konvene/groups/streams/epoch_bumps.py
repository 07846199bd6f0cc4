"""Epoch bumps of a streams group for causes other than changes of a member, checked at each heartbeat.

The epoch is bumped, at most once per decision, if one of these inputs of a target changed: whether the topics
of the topology exist and match (`topology.resolution`), the assignment configs in the log, or the progress of
warm-up tasks. Changes of the member and of the topology are handled before, in `heartbeat` and `classic`.
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
from konvene.groups.streams.warmups import add_warmup_causes
from konvene.shard import causes


def maybe_bump_epoch(
    decision: Decision,
    member: Member,
    topology: Topology,
    configured: ConfiguredTopology,
    reported: Iterable[Task],
    *,
    changed: bool,
) -> None:
    """Bump the group's epoch if an input of its targets changed.

    `changed`: the caller has found a change already. `reported`: tasks whose offsets the member reports.
    """
    changed |= update_validated_epoch(decision, topology, configured)
    decision.assignment_configs = assignment_configs(decision.config, topology)
    if decision.assignment_configs != decision.group.assignment_configs and not changed:
        decision.cause(causes.ASSIGNMENT_CONFIGS_CHANGED)
        changed = True
    if not changed and configured.is_ready and add_warmup_causes(decision, member, reported):
        changed = True
    if changed:
        decision.bump()
