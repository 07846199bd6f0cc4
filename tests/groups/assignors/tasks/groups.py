"""Hypothesis strategies for streams groups: members share processes, and have any former assignment."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    Tasks,
    TopologyDescriber,
)

SUBTOPOLOGIES = ("0", "1", "10", "2", "é", "\U0001f600")
PROCESSES = ("p", "q", "r", "s", "\uffff")


@st.composite
def topologies(draw: st.DrawFn) -> TopologyDescriber:
    names = draw(st.lists(st.sampled_from(SUBTOPOLOGIES), min_size=1, max_size=4, unique=True))
    return TopologyDescriber(
        {name: Subtopology(draw(st.integers(0, 7)), draw(st.booleans())) for name in names}
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[GroupSpec, TopologyDescriber]:
    """Members with any tasks, even missing ones or those of others; or new members without tasks."""
    topology = draw(topologies())
    names = draw(st.lists(st.text("abxé", min_size=1, max_size=3), min_size=1, max_size=8, unique=True))
    processes = PROCESSES[: draw(st.integers(1, len(PROCESSES)))]
    members = {name: AssignmentMemberSpec(draw(st.sampled_from(processes))) for name in names}
    if draw(st.booleans()):
        for name in names:
            assigned = MemberAssignment(draw(some_tasks()), draw(some_tasks()), draw(some_tasks()))
            offsets = {
                sub: dict.fromkeys(some, draw(st.integers(0, 3))) for sub, some in draw(some_tasks()).items()
            }
            members[name] = replace(members[name], assigned=assigned, task_offsets=offsets)
    return GroupSpec(members, AssignmentConfigs(draw(st.integers(0, 3)))), topology


@st.composite
def some_tasks(draw: st.DrawFn) -> Tasks:
    partitions = st.frozensets(st.integers(0, 8), min_size=1).map(lambda some: tuple(sorted(some)))
    return draw(st.dictionaries(st.sampled_from(SUBTOPOLOGIES), partitions, max_size=3)) or NO_TASKS


def anew(spec: GroupSpec) -> GroupSpec:
    """Return the group without any current assignment."""
    members = {name: replace(of, assigned=NOTHING, task_offsets={}) for name, of in spec.members.items()}
    return replace(spec, members=members)


def having(spec: GroupSpec, given: GroupAssignment) -> GroupSpec:
    """Return the group with this assignment as the members' current one."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    return replace(spec, members=members)


def with_member(spec: GroupSpec, name: str, member: AssignmentMemberSpec) -> GroupSpec:
    return replace(spec, members={**spec.members, name: member})


def without(spec: GroupSpec, *names: str) -> GroupSpec:
    return replace(spec, members={name: of for name, of in spec.members.items() if name not in names})


def shuffled(spec: GroupSpec, topology: TopologyDescriber, seed: int) -> tuple[GroupSpec, TopologyDescriber]:
    """Return an equal group whose maps have another order."""
    chance = random.Random(seed)

    def other(of: Mapping[str, Any]) -> dict[str, Any]:
        return dict(chance.sample(list(of.items()), len(of)))

    def had(of: MemberAssignment) -> MemberAssignment:
        return MemberAssignment(other(of.active), other(of.standby), other(of.warmup))

    members = {
        name: replace(of, assigned=had(of.assigned), task_offsets=other(of.task_offsets))
        for name, of in spec.members.items()
    }
    return replace(spec, members=other(members)), TopologyDescriber(other(topology.subtopologies))
