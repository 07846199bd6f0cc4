"""Recorded results of Kafka 4.4.0's sticky task assignor, and measures of an assignment."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TaskOffsets,
    Tasks,
    TopologyDescriber,
)

VECTORS = Path(__file__).parents[3] / "vectors" / "assignors" / "streams-sticky.jsonl.gz"

Task = tuple[str, int]


class Case(NamedTuple):
    number: int
    event: str
    spec: GroupSpec
    topology: TopologyDescriber
    output: GroupAssignment
    figures: Mapping[str, float]

    def __repr__(self) -> str:
        return f"{self.number}-{self.event}"


def cases() -> list[Case]:
    return [_case(json.loads(line)) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]


def _case(case: dict[str, Any]) -> Case:
    members = {
        name: AssignmentMemberSpec(
            of["processId"],
            _assignment(of),
            of.get("instanceId"),
            of.get("rackId"),
            of.get("clientTags", {}),
            _offsets(of.get("taskOffsets", {})),
            _offsets(of.get("taskEndOffsets", {})),
        )
        for name, of in case["members"].items()
    }
    configs = AssignmentConfigs(case["numStandbyReplicas"], tuple(case["rackAwareAssignmentTags"]))
    topology = {one["id"]: Subtopology(one["partitions"], one["stateful"]) for one in case["subtopologies"]}
    output = {name: _assignment(of) for name, of in case["output"].items()}
    spec = GroupSpec(members, configs)
    return Case(case["case"], case["event"], spec, TopologyDescriber(topology), output, case["figures"])


def _assignment(by_role: dict[str, Any]) -> MemberAssignment:
    active, standby = (
        {name: tuple(sorted(some)) for name, some in by_role[role].items() if some} or NO_TASKS
        for role in ("active", "standby")
    )
    return MemberAssignment(active, standby) if active or standby else NOTHING


def _offsets(by_subtopology: dict[str, dict[str, int]]) -> TaskOffsets:
    return {name: {int(p): offset for p, offset in some.items()} for name, some in by_subtopology.items()}


# Measures of an assignment --------------------------------------------------------------------


def tasks(partitions: Tasks) -> list[Task]:
    return [(name, partition) for name, some in partitions.items() for partition in some]


def owners(given: GroupAssignment) -> dict[Task, str]:
    """Return the owner of each active task."""
    return {task: name for name, mine in given.items() for task in tasks(mine.active)}


def before(spec: GroupSpec) -> GroupAssignment:
    return {name: of.assigned for name, of in spec.members.items()}


def moved(spec: GroupSpec, given: GroupAssignment) -> list[Task]:
    """Return the active tasks that moved from one living member to another."""
    was = owners(before(spec))
    return [task for task, name in owners(given).items() if was.get(task, name) != name]


def spread(sizes: list[int]) -> int:
    return max(sizes) - min(sizes)


def actives(given: GroupAssignment) -> list[int]:
    return [len(tasks(mine.active)) for mine in given.values()]


def on_processes(spec: GroupSpec, given: GroupAssignment) -> Counter[tuple[str, Task]]:
    """Return how often each process has each task."""
    return Counter(
        (spec.members[name].process_id, task)
        for name, mine in given.items()
        for role in (mine.active, mine.standby, mine.warmup)
        for task in tasks(role)
    )


def wanted_standbys(spec: GroupSpec, topology: TopologyDescriber) -> Counter[Task]:
    """Return how many standbys each task should have, given enough processes."""
    return Counter(
        {
            (name, partition): spec.configs.num_standby_replicas
            for name, of in topology.subtopologies.items()
            if of.stateful
            for partition in range(of.partitions)
        }
    )


def figures(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> dict[str, float]:
    """Return the measures of the recorded cases; less is better, except for kept tasks."""
    was, now = owners(before(spec)), owners(given)
    process = {name: of.process_id for name, of in spec.members.items()}
    standby = [len(tasks(mine.standby)) for mine in given.values()]
    total = [a + b for a, b in zip(actives(given), standby, strict=True)]
    kept = [set(tasks(mine.standby)) & set(tasks(before(spec)[name].standby)) for name, mine in given.items()]
    had = sum(len(tasks(mine.standby)) for mine in before(spec).values())
    capacity = Counter(process.values())
    held = Counter(process for process, _ in on_processes(spec, given).elements())
    loads = [round(held[process] / capacity[process], 3) for process in capacity]
    return {
        "activeSpread": spread(actives(given)),
        "standbySpread": spread(standby),
        "totalSpread": spread(total),
        "activeKept": sum(now[task] == name for task, name in was.items() if task in now),
        "activeMovedMember": len(moved(spec, given)),
        "activeMovedProcess": sum(process[was[task]] != process[now[task]] for task in moved(spec, given)),
        "standbyKept": sum(map(len, kept)),
        "standbyGivenUp": had - sum(map(len, kept)),
        "standbyMissing": wanted_standbys(spec, topology).total() - sum(standby),
        "sameTaskTwiceOnProcess": sum(count > 1 for count in on_processes(spec, given).values()),
        "processLoadPerMemberMax": max(loads),
        "processLoadPerMemberMin": min(loads),
    }
