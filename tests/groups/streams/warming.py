"""An example of a custom task assignor: a stateful task warms up on its next owner before it moves there."""

from __future__ import annotations

from konvene.groups.assignors.tasks.contract import (
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.lags import Progress


def one_by_one(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Make each member active in every n-th task; assign no standbys."""
    members = sorted(spec.members)
    progress = Progress.of(spec.members.values())
    assignments: dict[str, tuple[dict[str, list[int]], dict[str, list[int]]]] = {m: ({}, {}) for m in members}
    tasks = [(name, n) for name, of in sorted(topology.subtopologies.items()) for n in range(of.partitions)]
    for i, task in enumerate(tasks):
        next_owner = members[i % len(members)]
        owner = next(
            (m for m in members if task[1] in spec.members[m].assigned.active.get(task[0], ())), None
        )
        process = spec.members[next_owner].process_id
        caught_up = progress.has_caught_up(process, task, spec.configs.acceptable_recovery_lag)
        if (
            owner is None
            or spec.members[owner].process_id == process
            or caught_up
            or not topology.is_stateful(task[0])
        ):
            assignments[next_owner][0].setdefault(task[0], []).append(task[1])
        else:
            assignments[owner][0].setdefault(task[0], []).append(task[1])
            assignments[next_owner][1].setdefault(task[0], []).append(task[1])
    return {
        name: MemberAssignment(
            {task: tuple(some) for task, some in active.items()},
            warmup={task: tuple(some) for task, some in warmup.items()},
        )
        for name, (active, warmup) in assignments.items()
    }
