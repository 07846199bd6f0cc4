"""`simple`, Kafka's assignor of share groups: balanced and sticky, with several members per partition.

Each partition gets ceil(members / partitions) members, so that no member is idle, and the members' numbers of
partitions differ by at most one. If all members subscribe to the same topics, these are assigned together,
else each topic separately among its subscribers.

Members keep their partitions as far as the balance permits. Members above their target give up partitions,
the most shared first; then partitions with too many members lose some; then the others are filled. A
partition may end up with one member less if all members below their target have it already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    SubscriptionType,
    partitions_of,
)

Unit = tuple[Uuid, int]


def assign(spec: GroupSpec) -> GroupAssignment:
    """Return a balanced and sticky assignment, as Kafka's assignor `simple` does.

    Raises `PartitionAssignorError` for a missing topic."""
    members = sorted(spec.members)
    topics = sorted({topic for member in spec.members.values() for topic in member.subscribed})
    partitions_of(spec, topics)
    assigned: dict[str, list[Unit]] = {member: [] for member in members}
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        _assign_topics(spec, members, units_of(spec, topics), assigned)
    else:
        subscribers = {
            topic: [member for member in members if topic in spec.members[member].subscribed]
            for topic in topics
        }
        # Topics with few subscribers come first: the others make up for their imbalance.
        for topic in sorted(topics, key=lambda topic: len(subscribers[topic])):
            _assign_topics(spec, subscribers[topic], units_of(spec, (topic,)), assigned)
    return {member: to_assignment(assigned[member], spec.members[member].assigned) for member in members}


def units_of(spec: GroupSpec, topics: Iterable[Uuid]) -> list[Unit]:
    """Return the partitions of these topics that may be assigned, as (topic id, partition).

    These are the `assignable` ones of a topic, or all if it does not restrict them.
    """
    return [
        (topic, partition)
        for topic in topics
        for known in (spec.topics[topic],)
        for partition in (range(known.partitions) if known.assignable is None else known.assignable)
    ]


def to_assignment(units: Iterable[Unit], previous: MemberAssignment) -> MemberAssignment:
    """Return these partitions as the assignment of a member; the `previous` object if it is equal."""
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(units):
        by_topic.setdefault(topic, []).append(partition)
    found = {topic: tuple(some) for topic, some in by_topic.items()}
    return previous if found == previous else found or NOTHING


def owned_units(spec: GroupSpec, members: Sequence[str], units: Iterable[Unit]) -> dict[str, set[Unit]]:
    """Return by member which of the partitions `units` it owns."""
    candidates = set(units)
    return {
        member: {
            unit
            for topic, partitions in spec.members[member].assigned.items()
            for partition in partitions
            if (unit := (topic, partition)) in candidates
        }
        for member in members
    }


def _assign_topics(
    spec: GroupSpec, members: Sequence[str], units: Sequence[Unit], assigned: Mapping[str, list[Unit]]
) -> None:
    if not units or not members:
        return
    members_per_unit = -(-len(members) // len(units))
    min_count, larger = divmod(members_per_unit * len(units), len(members))
    owned = owned_units(spec, members, units)
    # Members that own more of these, then those with little of other topics, have the larger targets.
    order = sorted(members, key=lambda name: (-len(owned[name]), len(assigned[name]), name))
    wanted = {member: min_count + (index < larger) for index, member in enumerate(order)}
    holders = Counter(unit for units_of_member in owned.values() for unit in units_of_member)
    for member in members:
        units_of_member = owned[member]
        if len(units_of_member) > wanted[member]:
            most_shared_first = sorted(units_of_member, key=lambda unit: (-holders[unit], unit))
            for unit in most_shared_first[: len(units_of_member) - wanted[member]]:
                units_of_member.remove(unit)
                holders[unit] -= 1
    _remove_excess(owned, holders, members_per_unit)
    _fill(owned, holders, units, wanted, members_per_unit)
    for member in members:
        assigned[member].extend(owned[member])


def _remove_excess(owned: Mapping[str, set[Unit]], holders: Counter[Unit], members_per_unit: int) -> None:
    """Take partitions with more than `members_per_unit` members away from members with the most partitions.

    `holders`: number of members by partition. Both mappings are updated.
    """
    excess = {unit for unit, count in holders.items() if count > members_per_unit}
    if not excess:
        return
    for member in sorted(owned, key=lambda name: (-len(owned[name]), name)):
        for unit in sorted(owned[member] & excess):
            if holders[unit] > members_per_unit:
                owned[member].remove(unit)
                holders[unit] -= 1


def _fill(
    owned: Mapping[str, set[Unit]],
    holders: Counter[Unit],
    units: Sequence[Unit],
    wanted: Mapping[str, int],
    members_per_unit: int,
) -> None:
    """Assign partitions with too few members to the members furthest below their target.

    Partitions with the fewest members come first. `holders`: number of members by partition; `wanted`: target
    number of partitions by member.
    """
    below_target = [
        (len(owned[member]) - wanted[member], index, member) for index, member in enumerate(owned)
    ]
    below_target = [entry for entry in below_target if entry[0] < 0]
    heapify(below_target)
    for unit in sorted(units, key=lambda unit: holders[unit]):
        passed: list[tuple[int, int, str]] = []
        while holders[unit] < members_per_unit and below_target:
            missing, index, member = heappop(below_target)
            if unit not in owned[member]:
                owned[member].add(unit)
                holders[unit] += 1
                missing += 1
            if missing:
                passed.append((missing, index, member))
        for entry in passed:
            heappush(below_target, entry)
