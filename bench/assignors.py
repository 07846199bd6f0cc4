"""Server-side assignors: CPU time of one assignment, for a new group and after a member has joined.

No broker is needed. Groups are made as in Kafka's own benchmark of its assignors: all members subscribe to
all topics, or, in a mixed group, each of five kinds of members to a fifth of them. Task assignors get
subtopologies that all have state, one standby, one or fifty members per process, and reported offsets of all
tasks or of none. Kafka's figures are of its own classes on a warm JVM.

The high-availability assignor is run with all members reporting all of their tasks, and then, after a member
has joined, repeatedly until the assignment is stable, with all warm-ups caught up between two runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, less
from bench.systems import Lab
from konvene.codec.uuid import Uuid
from konvene.groups.assignors import ASSIGNORS, GroupAssignment, GroupSpec, MemberSpec, TopicSpec
from konvene.groups.assignors.tasks import contract
from konvene.groups.streams.assignors import TASK_ASSIGNORS

ROUNDS = 11
RACKS = ("a", "b", "c")


class Size(NamedTuple):
    """Size of a group: members, kinds of subscriptions, topics and partitions per topic."""

    assignor: str
    members: int
    topics: int
    partitions: int
    kinds: int = 1

    @property
    def label(self) -> str:
        mixed = " mixed" if self.kinds > 1 else ""
        return f"{self.assignor}{mixed} {self.members:,}x{self.topics:,}x{self.partitions}"


SIZES = (
    Size("uniform", 10_000, 1_000, 100),
    Size("uniform", 1_000, 1_000, 50, kinds=5),
    Size("uniform", 100, 10, 100),
    Size("range", 10_000, 1_000, 100),
    Size("rack-aware", 10_000, 1_000, 100),
    Size("rack-aware", 100, 10, 100),
)


class TaskSize(NamedTuple):
    """Size of a streams group: members, subtopologies and tasks per subtopology, with one standby each."""

    assignor: str
    members: int
    subtopologies: int
    partitions: int
    per_process: int = 1
    offsets: bool = False

    @property
    def label(self) -> str:
        shared = f" {self.per_process} a process" if self.per_process > 1 else ""
        reported = " offsets" if self.offsets else ""
        size = f"{self.members:,}x{self.subtopologies:,}x{self.partitions}"
        return f"{self.assignor}{shared}{reported} {size}"


TASK_SIZES = (
    TaskSize("sticky", 1_000, 100, 100),
    TaskSize("sticky", 1_000, 100, 100, per_process=50),
    TaskSize("sticky", 1_000, 100, 100, offsets=True),
    TaskSize("sticky", 100, 10, 100),
    TaskSize("highly_available", 1_000, 100, 100, offsets=True),
    TaskSize("highly_available", 1_000, 100, 100, per_process=50, offsets=True),
    TaskSize("highly_available", 100, 10, 100, offsets=True),
)


def figures(lab: Lab) -> list[Figure]:
    """Return the median CPU milliseconds of one assignment."""
    found = []
    for size in SIZES:
        assign = ASSIGNORS[size.assignor].assign
        new = _group(size, lab)
        joined = _joined(new, assign(new))
        found += _both(size, lab, partial(assign, new), partial(assign, joined))
    for of in TASK_SIZES:
        assign_tasks = TASK_ASSIGNORS[of.assignor].assign
        spec, topology = _streams_group(of, lab)
        later = _joined_streams(spec, assign_tasks(spec, topology))
        found += _both(of, lab, partial(assign_tasks, spec, topology), partial(assign_tasks, later, topology))
        if of.assignor == "highly_available":
            steps = _until_settled(later, topology)
            found.append(less(f"{of.label}, a step of a scale-out, ms", steps))
            found.append(less(f"{of.label}, the longest step, ms", [max(steps)]))
    return found


def _both(
    size: Size | TaskSize, lab: Lab, new: Callable[[], object], joined: Callable[[], object]
) -> list[Figure]:
    return [
        less(f"{size.label}, ms", _measured(size.members, new, lab)),
        less(f"{size.label}, one joins, ms", _measured(size.members, joined, lab)),
    ]


def _measured(members: int, assign: Callable[[], object], lab: Lab) -> list[float]:
    times = max(1, 2_000 // members)  # the clock ticks in milliseconds on some machines
    took = []
    for _ in range(lab.of(ROUNDS)):
        began = time.process_time()
        for _ in range(times):
            assign()
        took.append((time.process_time() - began) / times * 1000)
    return took


def _group(size: Size, lab: Lab) -> GroupSpec:
    """Return a new group without assignments. Each partition has replicas in two of three racks."""
    chance = random.Random(size.members)
    count = size.kinds * max(1, lab.of(size.topics) // size.kinds)
    racks = [frozenset(RACKS) - {rack} for rack in RACKS]
    topics = {
        Uuid(chance.randbytes(16)): TopicSpec(
            size.partitions, tuple(chance.choice(racks) for _ in range(size.partitions))
        )
        for _ in range(count)
    }
    ids = list(topics)
    each = count // size.kinds
    subscribed = [frozenset(ids[kind * each : (kind + 1) * each]) for kind in range(size.kinds)]
    members = max(size.kinds, lab.of(size.members))
    return GroupSpec.of(
        {
            f"member{n}": MemberSpec(subscribed[n * size.kinds // members], rack_id=RACKS[n % 3])
            for n in range(members)
        },
        topics,
    )


def _joined(spec: GroupSpec, given: GroupAssignment) -> GroupSpec:
    """Return the assigned group with one more member, which subscribes like the last one."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    *_, last = spec.members.values()
    return replace(spec, members=members | {"newMember": MemberSpec(last.subscribed, rack_id=last.rack_id)})


def _streams_group(size: TaskSize, lab: Lab) -> tuple[contract.GroupSpec, contract.TopologyDescriber]:
    """Return a new streams group without assignments."""
    members = {
        f"member{n}": contract.AssignmentMemberSpec(f"process{n // size.per_process}")
        for n in range(max(2, lab.of(size.members)))
    }
    topology = contract.TopologyDescriber(
        {
            f"{n}": contract.Subtopology(size.partitions, True)
            for n in range(max(1, lab.of(size.subtopologies)))
        }
    )
    spec = contract.GroupSpec(
        members, contract.AssignmentConfigs(num_standby_replicas=1, num_warmup_replicas=2)
    )
    if not size.offsets:
        return spec, topology
    given = TASK_ASSIGNORS[size.assignor].assign(spec, topology)
    if size.assignor == "highly_available":
        return _followed(spec, given, keeps=False), topology
    members_with_offsets = {
        name: replace(of, task_offsets=_offsets(given[name])) for name, of in members.items()
    }
    return replace(spec, members=members_with_offsets), topology


def _followed(
    spec: contract.GroupSpec, given: contract.GroupAssignment, *, keeps: bool = True
) -> contract.GroupSpec:
    """Return the group after all tasks of the assignment `given` have caught up.

    With `keeps` the members are assigned these tasks; otherwise they only have the tasks' state on disk.
    """
    members = {}
    for name, of in spec.members.items():
        offsets = _offsets(given[name])
        assigned = given[name] if keeps else of.assigned
        members[name] = replace(
            of, assigned=assigned, task_offsets=offsets, task_end_offsets=offsets, reports_offsets=True
        )
    return replace(spec, members=members)


def _until_settled(spec: contract.GroupSpec, topology: contract.TopologyDescriber) -> list[float]:
    """Return the milliseconds of each assignment until the result is stable."""
    assign, took = TASK_ASSIGNORS["highly_available"].assign, []
    while True:
        began = time.process_time()
        given = assign(spec, topology)
        took.append((time.process_time() - began) * 1000)
        if all(given[name] is of.assigned for name, of in spec.members.items()):
            return took
        spec = _followed(spec, given)


def _offsets(of: contract.MemberAssignment) -> contract.TaskOffsets:
    """Return the offsets of all tasks of a member, or of the state left on its disk."""
    found: dict[str, dict[int, int]] = {}
    for tasks in (of.active, of.standby, of.warmup):
        for name, partitions in tasks.items():
            found.setdefault(name, {}).update({partition: 100 + partition for partition in partitions})
    return found


def _joined_streams(spec: contract.GroupSpec, given: contract.GroupAssignment) -> contract.GroupSpec:
    """Return the assigned streams group with one more member, in a process of its own."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    reports = any(of.reports_offsets for of in members.values())
    new = contract.AssignmentMemberSpec("process-newMember", reports_offsets=reports)
    return replace(spec, members=members | {"newMember": new})
