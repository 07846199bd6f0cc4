"""A task assignor as anybody may write one: what has state warms up where it is to go, and then moves."""

from __future__ import annotations

from konvene.groups.assignors.tasks.contract import (
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.lags import Progress


def one_by_one(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Each member is to be active in every n-th task, and has a standby of none."""
    members = sorted(spec.members)
    progress = Progress.of(spec.members.values())
    given: dict[str, tuple[dict[str, list[int]], dict[str, list[int]]]] = {m: ({}, {}) for m in members}
    tasks = [(name, n) for name, of in sorted(topology.subtopologies.items()) for n in range(of.partitions)]
    for i, task in enumerate(tasks):
        wanted = members[i % len(members)]
        runs = next((m for m in members if task[1] in spec.members[m].assigned.active.get(task[0], ())), None)
        process = spec.members[wanted].process_id
        there = progress.has_caught_up(process, task, spec.configs.acceptable_recovery_lag)
        if (
            runs is None
            or spec.members[runs].process_id == process
            or there
            or not topology.is_stateful(task[0])
        ):
            given[wanted][0].setdefault(task[0], []).append(task[1])
        else:
            given[runs][0].setdefault(task[0], []).append(task[1])
            given[wanted][1].setdefault(task[0], []).append(task[1])
    return {
        name: MemberAssignment(
            {task: tuple(some) for task, some in active.items()},
            warmup={task: tuple(some) for task, some in warmup.items()},
        )
        for name, (active, warmup) in given.items()
    }
