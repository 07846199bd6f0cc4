"""The rack-aware assignor: balanced, then rack-local, then sticky. Kafka has none (KAFKA-19387).

A partition is local to a member if one of its replicas is in the member's rack. In the order of precedence:

    1. balance      the sizes are those of `uniform`, possibly for other members
    2. locality     as many partitions as possible are local to their owners
    3. stickiness   partitions stay, except where a move makes another partition local

A remote owner costs with every record, a move costs once. If racks are unknown, or no exchange improves the
locality, the result is that of `uniform`.

The first step is a balanced assignment in which members above their quota give up remote partitions first,
and members below it receive local ones first. The second step searches for cycles of handovers: a remote
partition goes to a member to which it is local, which gives another partition to the next member, and so on
until a partition goes to the first member. No member on the cycle receives a remote partition for a local
one.

A cycle makes one more partition local and changes no size. If all members subscribe to the same topics, a
cycle may skip from a member to a larger one: the former keeps the partition that it received, and the latter
gives one in its place, so that the two exchange their sizes. When there is no cycle left, no balanced
assignment of such a group has more local partitions (by the theorem of augmenting paths).

Cost: members with the same rack, subscription and size are one kind, and partitions with the same racks and
subscribers one class. The search runs on kinds and classes, and a cycle is applied until a class is empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    SubscriptionType,
    partitions_of,
)
from konvene.groups.assignors.uniform import assignor
from konvene.groups.assignors.uniform.assignor import Runs

__all__ = ["assign"]

MAX_ROUNDS = 4
"""Maximum number of rounds of exchanging and balancing, of which each may permit more of the other."""
MAX_VISITED = 100
MAX_SEARCHES = 5_000
"""Limits of one search and of their number, if subscriptions differ, since every member may then be of
another kind. Later assignments continue the search."""

Unit = tuple[Uuid, int]
MemberKind = tuple[str | None, frozenset[Uuid], int]
"""Rack, subscription, size."""
Racks = frozenset[str]
NO_RACKS: Racks = frozenset()


def assign(spec: GroupSpec) -> GroupAssignment:
    """Return an assignment as balanced as that of `uniform`, with more rack-local partitions if possible."""
    racks = {member.rack_id for member in spec.members.values()} - {None}
    if not racks or not any(topic.racks for topic in spec.topics.values()):
        return assignor.assign(spec)
    order = sorted(spec.members)
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        return _improve_locality(spec, order, _prefer_local(spec, order), sizes_may_change=True)
    assignment = assignor.assign(spec)
    for _ in range(MAX_ROUNDS):
        improved = _improve_locality(spec, order, assignment, sizes_may_change=False)
        assignment = assignor.assign(_with_assignment(spec, improved))
        if all(assignment[member] is assigned for member, assigned in improved.items()):
            break
    return assignment


def _improve_locality(
    spec: GroupSpec, order: Sequence[str], assignment: GroupAssignment, *, sizes_may_change: bool
) -> GroupAssignment:
    search = _ExchangeSearch(spec, order, assignment, sizes_may_change)
    return search.assignment(assignment) if search.exchange() else assignment


def _with_assignment(spec: GroupSpec, assignment: GroupAssignment) -> GroupSpec:
    """Return the input of the assignor as if the members had adopted this assignment."""
    members = {name: replace(member, assigned=assignment[name]) for name, member in spec.members.items()}
    return replace(spec, members=members)


def _racks(spec: GroupSpec, topic: Uuid, partition: int) -> Racks:
    racks = spec.topics[topic].racks
    return racks[partition] if partition < len(racks) else NO_RACKS


# The first step, if all members subscribe to the same topics -------------------------------------


def _prefer_local(spec: GroupSpec, order: Sequence[str]) -> GroupAssignment:
    """Return an assignment as balanced as that of `uniform`, preferring local partitions.

    Members above their quota keep local partitions first, and those below it receive local ones first. For
    groups whose members all subscribe to the same topics.
    """
    counts = partitions_of(spec, sorted(spec.members[order[0]].subscribed))
    min_quota = sum(counts.values()) // len(order)
    racks_below_quota = frozenset(
        member.rack_id
        for member in spec.members.values()
        if member.rack_id is not None and sum(map(len, member.assigned.values())) < min_quota
    )

    def trim(
        member: MemberSpec, owned: MemberAssignment, quota: int, rank: Mapping[Uuid, int], revoked: Runs
    ) -> MemberAssignment:
        def trim_order(unit: Unit) -> tuple[bool, bool, int, int]:
            racks = _racks(spec, *unit)
            return (
                member.rack_id not in racks,
                not racks_below_quota.isdisjoint(racks),
                rank[unit[0]],
                unit[1],
            )

        units = sorted(((topic, p) for topic, some in owned.items() for p in some), key=trim_order)
        revoked.extend((topic, (partition,)) for topic, partition in units[quota:])
        return _by_topic(units[:quota])

    retained = assignor.retain(spec, order, counts, trim)
    _distribute(spec, retained)
    return retained.assignments


def _distribute(spec: GroupSpec, retained: assignor.Retained) -> None:
    """Assign the unassigned partitions to members below their quota: first local ones, then the others.

    A member first gets the local partitions that are local to the fewest other members below their quota.
    """
    wanted: dict[str | None, int] = {}
    for member, count in retained.below_quota:
        rack = spec.members[member].rack_id
        wanted[rack] = wanted.get(rack, 0) + count
    heaps: dict[Racks, list[Unit]] = {}
    for topic, run in retained.unassigned:
        for partition in run:
            heaps.setdefault(_racks(spec, topic, partition), []).append((topic, partition))
    for heap in heaps.values():
        heap.reverse()  # The first one is popped first.
    least_wanted_first = sorted(
        heaps, key=lambda racks: (sum(wanted.get(rack, 0) for rack in racks), sorted(racks))
    )
    local_heaps = {rack: [heaps[racks] for racks in least_wanted_first if rack in racks] for rack in wanted}
    received = [
        _pop_partitions(local_heaps[spec.members[member].rack_id], count)
        for member, count in retained.below_quota
    ]
    for (member, count), units in zip(retained.below_quota, received, strict=True):
        units += _pop_partitions([heaps[racks] for racks in least_wanted_first], count - len(units))
        owned = [(topic, p) for topic, some in retained.assignments[member].items() for p in some]
        retained.assignments[member] = _by_topic(owned + units)


def _pop_partitions(heaps: Iterable[list[Unit]], count: int) -> list[Unit]:
    units: list[Unit] = []
    for heap in heaps:
        while heap and len(units) < count:
            units.append(heap.pop())
    return units


def _by_topic(units: Iterable[Unit]) -> MemberAssignment:
    """Return these partitions as the assignment of a member: sorted, by topic."""
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in units:
        by_topic.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(some)) for topic, some in by_topic.items()} or NOTHING


# The second step: cycles of handovers ---------------------------------------------------------


class _PartitionClass:
    """A class of partitions that have the same subscribers and the same racks."""

    __slots__ = ("racks", "readers")

    def __init__(self, racks: Racks, readers: tuple[frozenset[Uuid], ...]) -> None:
        self.racks = racks
        self.readers = readers
        """Subscriptions that contain the topic."""

    def is_local_to(self, kind: MemberKind) -> bool:
        """Return whether the partitions are local to members of this kind."""
        return kind[0] in self.racks


@dataclass(frozen=True, slots=True)
class Handover:
    """A step of a cycle: a partition of a class goes from a member of one kind to one of another."""

    source: MemberKind
    partition_class: _PartitionClass
    target: MemberKind


class _ExchangeSearch:
    """An assignment changed by cycles of handovers, indexed by member kinds and partition classes."""

    def __init__(
        self, spec: GroupSpec, order: Sequence[str], assignment: GroupAssignment, sizes_may_change: bool
    ) -> None:
        self.sizes_may_change = sizes_may_change
        self.classes = _classify_partitions(spec)
        self.members: dict[MemberKind, dict[str, None]] = {}
        self.kinds_of: dict[frozenset[Uuid], dict[MemberKind, None]] = {}
        """Kinds by subscription, including those without members."""
        self.kind_of: dict[str, MemberKind] = {}
        self.owner: dict[Unit, str] = {}
        self.units: dict[MemberKind, dict[_PartitionClass, dict[Unit, None]]] = {}
        """Partitions by kind of their owner and by class. Moved partitions are last, and given first."""
        self.changed: set[str] = set()
        self.searches = 0
        moved: list[tuple[Unit, str]] = []
        for member in order:
            size = sum(map(len, assignment[member].values()))
            spec_of_member = spec.members[member]
            kind = spec_of_member.rack_id, spec_of_member.subscribed, size
            self._add_member(member, kind)
            for topic, partitions in sorted(assignment[member].items()):
                previous = spec_of_member.assigned.get(topic, ())
                for partition in partitions:
                    self.owner[topic, partition] = member
                    if assignment[member] is spec_of_member.assigned or partition in previous:
                        self._add_unit((topic, partition), kind)
                    else:
                        moved.append(((topic, partition), member))
        for unit, member in moved:
            self._add_unit(unit, self.kind_of[member])

    def _add_member(self, member: str, kind: MemberKind) -> None:
        self.kind_of[member] = kind
        self.members.setdefault(kind, {})[member] = None
        self.kinds_of.setdefault(kind[1], {})[kind] = None
        self.units.setdefault(kind, {})

    def _add_unit(self, unit: Unit, kind: MemberKind) -> None:
        self.units[kind].setdefault(self.classes[unit], {})[unit] = None

    def exchange(self) -> bool:
        """Apply cycles that make partitions local until there are none; return whether there were any."""
        has_changed = True
        while has_changed:
            has_changed = False
            for kind in list(self.units):
                for partition_class in list(self.units[kind]):
                    if not partition_class.is_local_to(kind):
                        while self.units[kind].get(partition_class) and (
                            cycle := self._find_cycle(kind, partition_class)
                        ):
                            has_changed = True
                            self._apply_cycle(cycle)
        return bool(self.changed)

    def _find_cycle(self, first: MemberKind, first_class: _PartitionClass) -> list[Handover] | None:
        """Return a cycle of handovers whose first one makes a partition local.

        This is a partition of `first_class` of a member of kind `first`. Return None if there is no cycle.
        """
        predecessors: dict[MemberKind, Handover | MemberKind] = {}
        queue: deque[MemberKind] = deque([first])
        may_resize = self.sizes_may_change
        visited = 0
        self.searches += 1
        if not self.sizes_may_change and self.searches > MAX_SEARCHES:
            return None
        while queue and (self.sizes_may_change or visited < MAX_VISITED):
            source = queue.popleft()
            is_first = source == first
            for partition_class in (
                [first_class]
                if is_first
                else [partition_class for partition_class, units in self.units[source].items() if units]
            ):
                for kind in self._targets(
                    source, partition_class, local_only=is_first or partition_class.is_local_to(source)
                ):
                    visited += 1
                    if kind not in predecessors:
                        predecessors[kind] = Handover(source, partition_class, kind)
                        queue.append(kind)
            larger = [kind for kind in self.kinds_of[source[1]] if self.members[kind] and kind[2] > source[2]]
            if may_resize and larger and not is_first:
                may_resize = False
                for kind in larger:
                    if kind not in predecessors:
                        predecessors[kind] = source
                        queue.append(kind)
            if first in predecessors:
                return _path_to(predecessors, first)
        return None

    def _targets(
        self, source: MemberKind, partition_class: _PartitionClass, *, local_only: bool
    ) -> Iterator[MemberKind]:
        """Yield the kinds of members that may receive a partition of this class from `source`.

        `local_only`: only kinds to which the partition is local.
        """
        for subscribed in partition_class.readers:
            for kind in self.kinds_of[subscribed]:
                if (
                    kind != source
                    and self.members[kind]
                    and (not local_only or kind[0] in partition_class.racks)
                ):
                    yield kind

    def _apply_cycle(self, steps: list[Handover]) -> None:
        """Apply a cycle once if it changes members' sizes; else until one of its steps has no partition."""
        next_handovers = [*steps[1:], steps[0]]
        resized = next(
            (index for index, step in enumerate(steps) if step.target != next_handovers[index].source), None
        )
        while all(self.units[step.source].get(step.partition_class) for step in steps):
            units = [self.units[step.source][step.partition_class].popitem()[0] for step in steps]
            owners = [self.owner[unit] for unit in units]
            targets = [*owners[1:], owners[0]]
            if resized is not None:
                shrinking, targets[resized] = (
                    targets[resized],
                    next(iter(self.members[steps[resized].target])),
                )
            for unit, target in zip(units, targets, strict=True):
                self.owner[unit] = target
                self._add_unit(unit, self.kind_of[target])
            self.changed.update(targets, owners)
            if resized is not None:
                self._resize(shrinking, -1)
                self._resize(targets[resized], +1)
                return

    def _resize(self, member: str, by: int) -> None:
        """Move a member whose number of partitions changed `by` this to the kind of its new size."""
        old = self.kind_of[member]
        kind = old[0], old[1], old[2] + by
        del self.members[old][member]
        self._add_member(member, kind)
        for partition_class, units in self.units[old].items():
            for unit in [unit for unit in units if self.owner[unit] == member]:
                del units[unit]
                self.units[kind].setdefault(partition_class, {})[unit] = None

    def assignment(self, given: GroupAssignment) -> GroupAssignment:
        """Return the assignment after all cycles; members without changes keep their mapping of `given`."""
        units: dict[str, list[Unit]] = {}
        for unit, member in self.owner.items():
            if member in self.changed:
                units.setdefault(member, []).append(unit)
        return {
            member: _by_topic(units.get(member, ())) if member in self.changed else assigned
            for member, assigned in given.items()
        }


def _path_to(predecessors: Mapping[MemberKind, Handover | MemberKind], first: MemberKind) -> list[Handover]:
    """Return, in order, the handovers of the cycle that the search found from `first` back to `first`."""
    steps: list[Handover] = []
    kind = first
    while not steps or kind != first:
        step = predecessors[kind]
        if isinstance(step, Handover):
            steps.append(step)
            kind = step.source
        else:
            kind = step
    return steps[::-1]


def _classify_partitions(spec: GroupSpec) -> dict[Unit, _PartitionClass]:
    """Return the class of each partition of a subscribed topic."""
    subscriptions: dict[Uuid, list[frozenset[Uuid]]] = {}
    for subscribed in dict.fromkeys(spec.members[name].subscribed for name in sorted(spec.members)):
        for topic in subscribed:
            subscriptions.setdefault(topic, []).append(subscribed)
    classes_by_key: dict[tuple[Racks, tuple[frozenset[Uuid], ...]], _PartitionClass] = {}
    classes = {}
    for topic in sorted(subscriptions):
        readers = tuple(subscriptions[topic])
        for partition in range(spec.topics[topic].partitions):
            key = _racks(spec, topic, partition), readers
            if key not in classes_by_key:
                classes_by_key[key] = _PartitionClass(*key)
            classes[topic, partition] = classes_by_key[key]
    return classes
