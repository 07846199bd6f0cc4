"""Where copies of tasks stand: tags that they share, racks that they are outside of (KIP-708, KIP-1071).

Members say client tags (`zone=a`, `cluster=k1`), and a group names the tags over whose values the copies of a
task are to be spread. Two copies clash on a tag if both members say the same value of it. A copy is local if
the member's rack is one of those that have all partitions which the task reads.

    clash       tags on which a member shares its value with somebody that has a copy. Who does not say one of
                the tags clashes with nobody on it, but comes behind those who clash as little and say all:
                the number is shared tags * (tags + 1) + tags not said. It is 0 for who is known to be apart
    local       also where the rack of the member, or those of the task, are not known; and where no rack has
                all that the task reads, for then no place is better than another

A tag of which all values are taken is shared by whoever comes next, so that it makes no difference between
candidates, as in Kafka's ClientTagAwareStandbyTaskAssignor. Unlike there, who shares one tag comes before who
shares two.

This decides nothing of who has how many tasks; for that see the assignors, and `task_spread` for changing
places afterwards. Members with the same tags are one class, and what two classes share is computed once: a
question costs as much as there are copies.
"""

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
"""What a member says of each configured tag, in their order; None where it says nothing."""


class Racks:
    """What is known of where the members of a group, and its tasks, are."""

    __slots__ = ("_class_of", "_racks", "_rows", "_shared", "_tags", "_tasks", "_values", "is_trivial")

    def __init__(self, spec: GroupSpec, topology: TopologyDescriber, tags: tuple[str, ...]) -> None:
        self._tags = tags
        numbers: dict[TagValues, int] = {}
        self._class_of: dict[str, int] = {}
        """For each member the number of those who say the same tags."""
        self._racks: dict[str, str] = {}
        """For each member that says one."""
        for name in sorted(spec.members):
            member = spec.members[name]
            said = tuple(member.client_tags.get(tag) for tag in tags)
            self._class_of[name] = numbers.setdefault(said, len(numbers))
            if member.rack_id is not None:
                self._racks[name] = member.rack_id
        self._values: tuple[TagValues, ...] = tuple(numbers)
        self._shared: dict[tuple[int, int], int] = {}
        """The tags that two classes share, one bit for each."""
        self._rows: dict[int, list[int]] = {}
        """The same for a class and all others."""
        self._tasks: dict[str, tuple[frozenset[str], ...]] = {
            name: found.racks for name, found in topology.subtopologies.items() if found.racks
        }
        self.is_trivial = not tags and not (self._racks and self._tasks)
        """No tags are configured and no racks are known: every answer is 0, or True."""

    @classmethod
    def of(cls, spec: GroupSpec, topology: TopologyDescriber) -> Racks:
        """What a group and its topology tell of places."""
        return cls(spec, topology, spec.configs.rack_aware_assignment_tags)

    def __repr__(self) -> str:
        return f"<Racks {len(self._values)} classes by tags, {len(self._racks)} members with racks>"

    def clash(self, member_id: str, others: Iterable[str]) -> int:
        """How much a copy at this member would share with those at others: the less, the better."""
        if not self._tags:
            return 0
        mine = self._class_of[member_id]
        shared = self.shared_by(mine, (self._class_of[other] for other in others))
        return shared * (len(self._tags) + 1) + self._values[mine].count(None)

    def is_local(self, member_id: str, task: Task) -> bool:
        """Whether the member is in a rack that has all that the task reads, or nobody knows."""
        rack, racks = self._racks.get(member_id), self._tasks.get(task[0], ())
        return rack is None or task[1] >= len(racks) or not racks[task[1]] or rack in racks[task[1]]

    # --- by classes ---

    @property
    def classes(self) -> range:
        """A number for all members that say the same tags."""
        return range(len(self._values))

    def class_of(self, member_id: str) -> int:
        """That of a member. Raises `KeyError` for who is none."""
        return self._class_of[member_id]

    def shared_by(self, one: int, others: Iterable[int]) -> int:
        """On how many tags a class shares its value with one of the others at least."""
        taken = 0
        for other in others:
            found = self._shared.get((one, other))
            taken |= self._common(one, other) if found is None else found
        return taken.bit_count()

    def shared_by_each(self, others: Iterable[int]) -> bytes:
        """The same of all classes, by their numbers. Of no more than 255 tags."""
        taken = [0] * len(self._values)
        for other in others:
            if other not in self._rows:
                self._rows[other] = [self._common(one, other) for one in self.classes]
            taken = list(map(or_, taken, self._rows[other]))
        return bytes(map(int.bit_count, taken))

    def says_all(self, one: int) -> bool:
        """Whether members of a class say a value of each tag."""
        return None not in self._values[one]

    def _common(self, one: int, two: int) -> int:
        pairs = zip(self._values[one], self._values[two], strict=True)
        found = sum(1 << at for at, (this, that) in enumerate(pairs) if this is not None and this == that)
        self._shared[one, two] = self._shared[two, one] = found
        return found


@dataclass(frozen=True, slots=True)
class Cost:
    """What an assignment costs by tags and racks. Of the first four the less the better."""

    actives_outside: int = 0
    """Active tasks at members outside the racks of what they read."""
    copies_outside: int = 0
    """Standby and warm-up tasks at such members."""
    pairs_sharing_all: int = 0
    """Pairs of copies of one task, the active one being a copy as well, with the same value of every tag."""
    pairs_sharing_some: int = 0
    """Pairs with the same value of some tags and not of all."""
    tasks_apart: int = 0
    """Tasks all copies of which are known to be on distinct values of every tag."""
    tasks_with_copies: int = 0
    """Tasks that have more than one copy: so many could be apart."""


NO_COST = Cost()


def cost(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> Cost:
    """Count what an assignment costs. What it gives to who is not in the group is left out."""
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
        apart += not any(shared) and all(map(racks.says_all, holders))
    return Cost(actives, copies, pairs_all, pairs_some, apart, tasks)


def _outside(racks: Racks, spec: GroupSpec, given: GroupAssignment) -> tuple[int, int]:
    """How many active tasks, and how many copies, are outside their racks."""
    actives = copies = 0
    for name, mine in given.items():
        if name in spec.members:
            actives += sum(not racks.is_local(name, task) for task in each_task(mine.active))
            for role in (mine.standby, mine.warmup):
                copies += sum(not racks.is_local(name, task) for task in each_task(role))
    return actives, copies


def _holders(racks: Racks, spec: GroupSpec, given: GroupAssignment) -> Mapping[Task, list[int]]:
    """The classes of those who have a copy of each task, in whatever role."""
    found: dict[Task, list[int]] = {}
    for name, mine in given.items():
        if name in spec.members:
            for task in each_copy(mine):
                found.setdefault(task, []).append(racks.class_of(name))
    return found


def each_copy(mine: MemberAssignment) -> Iterator[Task]:
    """The tasks that somebody has, in whatever role."""
    for role in (mine.active, mine.standby, mine.warmup):
        yield from each_task(role)


def each_task(tasks: Tasks) -> Iterator[Task]:
    """Tasks one by one."""
    for name, partitions in tasks.items():
        for partition in partitions:
            yield name, partition
