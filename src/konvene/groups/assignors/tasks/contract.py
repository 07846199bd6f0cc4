"""The input and output of a task assignor, and what must hold for them (KIP-1071, KIP-1357).

A task is one partition of a subtopology of a Kafka Streams application. Its active copy runs on one member;
standbys keep a copy of its state elsewhere. Members with the same process id share a disk. Hence the rules:

    active      every task exactly once, stateful or not
    standby     only of stateful subtopologies; as many as configured, or one for each other process
    process     a task at most once in any role, since its state has one directory on a disk
    warm-up     of stateful subtopologies, for the next active owner until its copy has caught up

An assignor is a function from a `GroupSpec` and a `TopologyDescriber` to a `GroupAssignment`. It is pure:
equal inputs have equal results, whatever the order of the mappings. As for partitions (see `contract`), tasks
are `{subtopology id: partitions}` with partitions as an ascending tuple, and subtopologies without tasks left
out; a member whose tasks do not change gets its own value back, so no value of an input or output may be
modified.

The current tasks of members may be of an older topology, or owned twice: an assignor ignores what is not
valid any more. `checked` validates the result of a third-party assignor."""

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
"""Partitions by subtopology id, ascending."""
TaskOffsets = Mapping[str, Mapping[int, int]]
"""Offsets by subtopology id and partition, summed over all changelogs of the task."""

NO_TASKS: Tasks = MappingProxyType({})
NO_OFFSETS: TaskOffsets = MappingProxyType({})


class TaskAssignorError(GroupError):
    """Error: the assignor cannot compute an assignment.

    Clients get UNKNOWN_SERVER_ERROR, as from Kafka, and the group does not change.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Errors.UNKNOWN_SERVER_ERROR, message)


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The tasks of one member by role."""

    active: Tasks = field(default_factory=lambda: NO_TASKS)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    warmup: Tasks = field(default_factory=lambda: NO_TASKS)


GroupAssignment = Mapping[str, MemberAssignment]
"""The tasks of each member, by member id. It has all members."""

NOTHING = MemberAssignment()
"""The assignment of a member without tasks."""


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """A member as input of an assignor: its process, current tasks, tags, and reported task offsets."""

    process_id: str
    assigned: MemberAssignment = NOTHING
    instance_id: str | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    task_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    """The last reported offsets, of its tasks and of dormant ones whose state is still on the disk."""
    task_end_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    reported_ms: int = 0
    """Timestamp of its last report: of two members of a process, which share a disk, the later one counts."""
    reports_offsets: bool = False
    """Whether it reports offsets. Only such members can be assigned a warm-up until they have caught up."""


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """The configs of a group on which assignments depend."""

    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()
    num_warmup_replicas: int = 0
    """Maximum number of warm-up tasks of the group at a time."""
    acceptable_recovery_lag: int = 10_000
    """In records: a copy with at most this lag has caught up."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The input of an assignor: the members of a group, and its configs."""

    members: Mapping[str, AssignmentMemberSpec]
    configs: AssignmentConfigs = AssignmentConfigs()


class Subtopology(NamedTuple):
    """A subtopology as input of an assignor: its number of tasks, whether they have state, their racks."""

    partitions: int
    stateful: bool = False
    racks: tuple[frozenset[str], ...] = ()
    """The racks that have all partitions that a task reads, by task; empty if they are unknown."""


@dataclass(frozen=True, slots=True)
class TopologyDescriber:
    """The topology as input of an assignor, with the methods of Kafka's `TopologyDescriber`."""

    subtopologies: Mapping[str, Subtopology]
    """The subtopologies by id."""

    def max_num_input_partitions(self, subtopology_id: str) -> int:
        """Return the number of tasks of a subtopology. Raises `KeyError` if it does not exist."""
        return self.subtopologies[subtopology_id].partitions

    def is_stateful(self, subtopology_id: str) -> bool:
        """Return whether a subtopology's tasks have state. Raises `KeyError` if it does not exist."""
        return self.subtopologies[subtopology_id].stateful


class TaskAssignor(NamedTuple):
    """A task assignor: its name in configs, and its function."""

    name: str
    assign: Callable[[GroupSpec, TopologyDescriber], GroupAssignment]
    """Raises `TaskAssignorError`."""


def checked(spec: GroupSpec, topology: TopologyDescriber, assignment: GroupAssignment) -> GroupAssignment:
    """Validate the result of a third-party assignor, and return it with partitions as ascending tuples.

    Raises `TaskAssignorError` if it has an unknown member, a task that does not exist, an active task twice,
    a task twice on one process, or standbys or warm-ups of a stateless task. Members and tasks may be left
    out."""
    unknown = sorted(map(str, assignment.keys() - spec.members.keys()))
    if unknown:
        raise TaskAssignorError(f"An assignment for {unknown[0]}, which is not a member.")
    active: set[tuple[str, int]] = set()
    on_process: set[tuple[str, str, int]] = set()
    result = {}
    for name, member in spec.members.items():
        assigned = assignment.get(name, NOTHING)
        roles = [_rising(assigned.active), _rising(assigned.standby), _rising(assigned.warmup)]
        for role, tasks in zip(("active", "standby", "warm-up"), roles, strict=True):
            for subtopology_id, partitions in tasks.items():
                for partition in partitions:
                    subject = f"{name} is given {role} task {subtopology_id}_{partition}, "
                    _check_exists(topology, subtopology_id, partition, role, subject)
                    if role == "active" and (subtopology_id, partition) in active:
                        raise TaskAssignorError(subject + "which another has as well.")
                    if (member.process_id, subtopology_id, partition) in on_process:
                        raise TaskAssignorError(subject + "which its process has already.")
                    on_process.add((member.process_id, subtopology_id, partition))
                    if role == "active":
                        active.add((subtopology_id, partition))
        result[name] = MemberAssignment(*roles) if any(roles) else NOTHING
    return result


def _rising(tasks: Tasks) -> Tasks:
    return {str(name): tuple(sorted(some)) for name, some in tasks.items() if some} or NO_TASKS


def _check_exists(
    topology: TopologyDescriber, subtopology_id: str, partition: int, role: str, subject: str
) -> None:
    found = topology.subtopologies.get(subtopology_id)
    if found is None or not 0 <= partition < found.partitions:
        raise TaskAssignorError(subject + "which does not exist.")
    if role != "active" and not found.stateful:
        raise TaskAssignorError(subject + "which has no state.")
