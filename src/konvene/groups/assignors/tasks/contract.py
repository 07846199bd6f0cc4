"""What a task assignor is given, what it gives back, and what must be true of that (KIP-1071, KIP-1357).

A task is one partition of a subtopology of a Kafka Streams application. Its active copy runs on one member;
standbys keep a copy of its state elsewhere. Members with one process id share a disk. That makes the rules:

    active      every task once, whether its subtopology has state or not
    standby     only of subtopologies with state; as many as are configured, or one for each other process
    process     a task at most once in any role, for its state has one place on a disk
    warm-up     of subtopologies with state, for who is to be active once its copy has caught up

An assignor is a function from a `GroupSpec` and a `TopologyDescriber` to a `GroupAssignment`; it is pure, and
equal values give equal answers, whatever the order of the maps. As with partitions (see `contract`), tasks
are told as `{subtopology id: partitions}` with partitions a tuple in rising order, subtopologies without any
left out; and who keeps what it had gets the very value back that it came with, so that nobody may change what
went in or came out.

What members had before may be of a topology that is gone, or be held by two: an assignor takes of it what is
still true. `checked` looks at an answer from a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from konvene.errors import Errors
from konvene.shard.errors import GroupError

__all__ = [
    "NOTHING",
    "NO_OFFSETS",
    "NO_TASKS",
    "AssignmentConfigs",
    "AssignmentMemberSpec",
    "GroupAssignment",
    "GroupSpec",
    "MemberAssignment",
    "Subtopology",
    "TaskAssignor",
    "TaskAssignorError",
    "TaskOffsets",
    "Tasks",
    "TopologyDescriber",
    "checked",
]

Tasks = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology id, rising."""
TaskOffsets = Mapping[str, Mapping[int, int]]
"""By subtopology id and partition: the sum over all changelogs of a task."""

NO_TASKS: Tasks = MappingProxyType({})
NO_OFFSETS: TaskOffsets = MappingProxyType({})


class TaskAssignorError(GroupError):
    """There is no assignment. Clients hear UNKNOWN_SERVER_ERROR, as from Kafka; the group stays as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(Errors.UNKNOWN_SERVER_ERROR, message)


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member has."""

    active: Tasks = field(default_factory=lambda: NO_TASKS)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    warmup: Tasks = field(default_factory=lambda: NO_TASKS)


GroupAssignment = Mapping[str, MemberAssignment]
"""What each member has, by member id. Every member is in it."""

NOTHING = MemberAssignment()
"""What a member has that has nothing."""


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """A member: where it runs, what it has now, and what state it says is on its disk."""

    process_id: str
    assigned: MemberAssignment = NOTHING
    instance_id: str | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    task_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    """As last reported, of tasks that it has and of dormant ones, whose state was left on the disk."""
    task_end_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    reported_ms: int = 0
    """When it last reported: of two members of one process, who share a disk, the later one counts."""
    reports_offsets: bool = False
    """Whether it says how far its tasks are. Who does not can be waited for by nobody."""


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """The settings of a group that assignors are told."""

    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()
    num_warmup_replicas: int = 0
    """So many tasks of the group warm up at a time."""
    acceptable_recovery_lag: int = 10_000
    """In records: who is behind by no more has caught up."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group that wants an assignment."""

    members: Mapping[str, AssignmentMemberSpec]
    configs: AssignmentConfigs = AssignmentConfigs()


class Subtopology(NamedTuple):
    """As many tasks as the source topic with most partitions has."""

    partitions: int
    stateful: bool = False
    racks: tuple[frozenset[str], ...] = ()
    """For each task the racks that have all partitions that it reads; empty where nobody knows."""


@dataclass(frozen=True, slots=True)
class TopologyDescriber:
    """The tasks there are."""

    subtopologies: Mapping[str, Subtopology]
    """By id."""

    def max_num_input_partitions(self, subtopology_id: str) -> int:
        """How many tasks a subtopology has. Raises `KeyError` where there is none of this id."""
        return self.subtopologies[subtopology_id].partitions

    def is_stateful(self, subtopology_id: str) -> bool:
        """Whether its tasks have changelogs. Raises `KeyError` where there is none of this id."""
        return self.subtopologies[subtopology_id].stateful


class TaskAssignor(NamedTuple):
    """A row of the table: the name that settings know, and the function."""

    name: str
    assign: Callable[[GroupSpec, TopologyDescriber], GroupAssignment]
    """Raises `TaskAssignorError`."""


def checked(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> GroupAssignment:
    """The answer of an assignor that may be anybody's: the same, with partitions in rising tuples.

    Raises `TaskAssignorError` where it gives something to nobody in the group, or what does not exist, or an
    active task twice, or a task to two members of one process, or copies of what has no state. Members, and
    tasks, may be left out.
    """
    strangers = sorted(map(str, given.keys() - spec.members.keys()))
    if strangers:
        raise TaskAssignorError(f"An assignment for {strangers[0]}, which is not a member.")
    active: set[tuple[str, int]] = set()
    on_process: set[tuple[str, str, int]] = set()
    answer = {}
    for name, member in spec.members.items():
        mine = given.get(name, NOTHING)
        roles = [_rising(mine.active), _rising(mine.standby), _rising(mine.warmup)]
        for role, tasks in zip(("active", "standby", "warm-up"), roles, strict=True):
            for subtopology_id, partitions in tasks.items():
                for partition in partitions:
                    told = f"{name} is given {role} task {subtopology_id}_{partition}, "
                    _check_there(topology, subtopology_id, partition, role, told)
                    if role == "active" and (subtopology_id, partition) in active:
                        raise TaskAssignorError(told + "which another has as well.")
                    if (member.process_id, subtopology_id, partition) in on_process:
                        raise TaskAssignorError(told + "which its process has already.")
                    on_process.add((member.process_id, subtopology_id, partition))
                    if role == "active":
                        active.add((subtopology_id, partition))
        answer[name] = MemberAssignment(*roles) if any(roles) else NOTHING
    return answer


def _rising(tasks: Tasks) -> Tasks:
    return {str(name): tuple(sorted(some)) for name, some in tasks.items() if some} or NO_TASKS


def _check_there(
    topology: TopologyDescriber, subtopology_id: str, partition: int, role: str, told: str
) -> None:
    found = topology.subtopologies.get(subtopology_id)
    if found is None or not 0 <= partition < found.partitions:
        raise TaskAssignorError(told + "which does not exist.")
    if role != "active" and not found.stateful:
        raise TaskAssignorError(told + "which has no state.")
