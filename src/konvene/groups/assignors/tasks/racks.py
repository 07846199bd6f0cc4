"""Placement of task copies by client tags and racks (KIP-708, KIP-1071).

Members have client tags (`zone=a`, `cluster=k1`), and a group configures the tags over whose values the
copies of a task are to be spread. Two copies clash on a tag if both members have the same value of it. A copy
is local if the member's rack is one of those that have all partitions which the task reads.

    clash       number of tags on which a member shares its value with another owner of a copy. A member
                without one of the tags does not clash on it, but comes after members that clash as little and
                have all tags: the number is shared tags * (tags + 1) + missing tags. 0 is only for members
                that are known to be apart
    local       also if the rack of the member, or those of the task, are unknown; and if no rack has all
                partitions of the task, since then no member is better than another

Once all values of a tag have a copy, every further copy shares one, so that the tag makes no difference
between candidates, as in Kafka's ClientTagAwareStandbyTaskAssignor. Unlike there, sharing one tag is better
than sharing two.

This module does not decide how many tasks a member gets; for that see the assignors, and `spread` for
exchanging standbys afterwards. Members with the same tags are one class, and what two classes share is
computed once: a query costs as much as there are copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import or_

from konvene.groups.assignors.tasks.contract import (
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Tasks,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.lags import Task

__all__ = ["NO_COST", "Cost", "Racks", "cost"]

TagValues = tuple[str | None, ...]
"""A member's values of the configured tags, in their order; None for a missing tag."""


class Racks:
    """An index of the client tags and racks of a group's members and the racks of its tasks, for queries."""

    __slots__ = ("_class_of", "_racks", "_rows", "_shared", "_tags", "_tasks", "_values", "is_trivial")

    def __init__(self, spec: GroupSpec, topology: TopologyDescriber, tags: tuple[str, ...]) -> None:
        self._tags = tags
        numbers: dict[TagValues, int] = {}
        self._class_of: dict[str, int] = {}
        """The class of each member: its index among the distinct tag values."""
        self._racks: dict[str, str] = {}
        """The racks of members that have one."""
        for name in sorted(spec.members):
            member = spec.members[name]
            values = tuple(member.client_tags.get(tag) for tag in tags)
            self._class_of[name] = numbers.setdefault(values, len(numbers))
            if member.rack_id is not None:
                self._racks[name] = member.rack_id
        self._values: tuple[TagValues, ...] = tuple(numbers)
        self._shared: dict[tuple[int, int], int] = {}
        """The tags that two classes share, as a bit set."""
        self._rows: dict[int, list[int]] = {}
        """By class: the tags that it shares with each class, as bit sets."""
        self._tasks: dict[str, tuple[frozenset[str], ...]] = {
            name: found.racks for name, found in topology.subtopologies.items() if found.racks
        }
        self.is_trivial = not tags and not (self._racks and self._tasks)
        """True if no tags are configured and no racks are known: then every clash is 0 and every copy is
        local."""

    @classmethod
    def of(cls, spec: GroupSpec, topology: TopologyDescriber) -> Racks:
        """Return the index of a group with all configured tags."""
        return cls(spec, topology, spec.configs.rack_aware_assignment_tags)

    def __repr__(self) -> str:
        return f"<Racks {len(self._values)} classes by tags, {len(self._racks)} members with racks>"

    def clash(self, member_id: str, others: Iterable[str]) -> int:
        """Return how much a copy at this member would clash with copies at `others`, members; 0 is best."""
        if not self._tags:
            return 0
        mine = self._class_of[member_id]
        shared = self.shared_by(mine, (self._class_of[other] for other in others))
        return shared * (len(self._tags) + 1) + self._values[mine].count(None)

    def is_local(self, member_id: str, task: Task) -> bool:
        """Return whether the member's rack has all partitions that the task reads, or racks are unknown."""
        rack, racks = self._racks.get(member_id), self._tasks.get(task[0], ())
        return rack is None or task[1] >= len(racks) or not racks[task[1]] or rack in racks[task[1]]

    # --- by classes ---

    @property
    def classes(self) -> range:
        """Return the numbers of the classes; members of a class have the same tags."""
        return range(len(self._values))

    def class_of(self, member_id: str) -> int:
        """Return the class of a member. Raises `KeyError` for an unknown member."""
        return self._class_of[member_id]

    def shared_by(self, one: int, others: Iterable[int]) -> int:
        """Return of how many tags the class `one` has the same value as any of the classes `others`."""
        taken = 0
        for other in others:
            found = self._shared.get((one, other))
            taken |= self._common(one, other) if found is None else found
        return taken.bit_count()

    def shared_by_each(self, others: Iterable[int]) -> bytes:
        """Return, by number of class, of how many tags it has the same value as any of the classes `others`.

        At most 255 tags are possible."""
        taken = [0] * len(self._values)
        for other in others:
            if other not in self._rows:
                self._rows[other] = [self._common(one, other) for one in self.classes]
            taken = list(map(or_, taken, self._rows[other]))
        return bytes(map(int.bit_count, taken))

    def has_all_tags(self, one: int) -> bool:
        """Return whether members of a class have a value for each tag."""
        return None not in self._values[one]

    def _common(self, one: int, two: int) -> int:
        pairs = zip(self._values[one], self._values[two], strict=True)
        found = sum(1 << at for at, (this, that) in enumerate(pairs) if this is not None and this == that)
        self._shared[one, two] = self._shared[two, one] = found
        return found


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of an assignment by tags and racks. Lower is better for the first four fields."""

    actives_outside: int = 0
    """Active tasks on members outside the racks of their partitions."""
    copies_outside: int = 0
    """Standby and warm-up tasks on members outside the racks of their partitions."""
    pairs_sharing_all: int = 0
    """Pairs of copies of a task, the active one included, with the same value of every tag."""
    pairs_sharing_some: int = 0
    """Pairs with the same value of some tags, but not all."""
    tasks_apart: int = 0
    """Tasks all copies of which are known to have distinct values of every tag."""
    tasks_with_copies: int = 0
    """Tasks with more than one copy."""


NO_COST = Cost()


def cost(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> Cost:
    """Return the costs of the assignment `given`; members that are not in the spec are ignored."""
    racks = Racks.of(spec, topology)
    tags = len(spec.configs.rack_aware_assignment_tags)
    actives, copies = _outside(racks, spec, given)
    pairs_all = pairs_some = apart = tasks = 0
    for holders in _holders(racks, spec, given).values():
        if len(holders) < 2:
            continue
        tasks += 1
        if not tags:
            continue
        shared = [racks.shared_by(one, (two,)) for at, one in enumerate(holders) for two in holders[:at]]
        pairs_all += sum(each == tags for each in shared)
        pairs_some += sum(0 < each < tags for each in shared)
        apart += not any(shared) and all(map(racks.has_all_tags, holders))
    return Cost(actives, copies, pairs_all, pairs_some, apart, tasks)


def _outside(racks: Racks, spec: GroupSpec, given: GroupAssignment) -> tuple[int, int]:
    """Return how many active tasks and how many standbys and warm-ups are not local to their members."""
    actives = copies = 0
    for name, mine in given.items():
        if name in spec.members:
            actives += sum(not racks.is_local(name, task) for task in each_task(mine.active))
            for role in (mine.standby, mine.warmup):
                copies += sum(not racks.is_local(name, task) for task in each_task(role))
    return actives, copies


def _holders(racks: Racks, spec: GroupSpec, given: GroupAssignment) -> Mapping[Task, list[int]]:
    """Return, for each assigned task, the class of each member that has a copy of it, in any role.

    A class is a number: members with the same client tags have the same one (`Racks.class_of`). Members that
    are not in the spec are ignored."""
    found: dict[Task, list[int]] = {}
    for name, mine in given.items():
        if name in spec.members:
            for task in each_copy(mine):
                found.setdefault(task, []).append(racks.class_of(name))
    return found


def each_copy(mine: MemberAssignment) -> Iterator[Task]:
    """Yield the tasks of a member in all roles."""
    for role in (mine.active, mine.standby, mine.warmup):
        yield from each_task(role)


def each_task(tasks: Tasks) -> Iterator[Task]:
    """Yield each task as subtopology id and partition."""
    for name, partitions in tasks.items():
        for partition in partitions:
            yield name, partition
