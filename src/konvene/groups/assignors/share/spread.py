"""`spread`, an assignor of share groups that Kafka does not have: balanced over all topics, and rack-aware.

`simple` assigns all partitions to the same number of members, and handles each topic separately if the
subscriptions differ, so one member may get a share of every topic and another only a few partitions. Here

    members per partition   one; more only if a member would otherwise be idle
    balance                 members have equally many partitions of all topics together, as far as their
                            subscriptions permit
    locality                partitions are in the racks of their members, as far as the balance permits
    stickiness              the current assignment is kept unless another one is better

Each member thus fetches from as few partitions as possible, and few members lock records of one partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import GroupAssignment, GroupSpec, partitions_of
from konvene.groups.assignors.share.simple import Unit, owned_units, to_assignment, units_of


def assign(spec: GroupSpec) -> GroupAssignment:
    """Return an assignment that is balanced over all topics together, then rack-local, then sticky.

    Raises `PartitionAssignorError` for a missing topic."""
    topics = sorted({topic for member in spec.members.values() for topic in member.subscribed})
    partitions_of(spec, topics)
    subscribers = {
        topic: [member for member in sorted(spec.members) if topic in spec.members[member].subscribed]
        for topic in topics
    }
    # Topics with few subscribers come first: the others make up for their imbalance.
    units = units_of(spec, sorted(topics, key=lambda topic: len(subscribers[topic])))
    assigned: dict[str, set[Unit]] = {member: set() for member in sorted(spec.members)}
    local = _local_units(spec)
    owner = _keep_owners(spec, units, assigned, local)
    for unit in units:
        if unit not in owner:
            target = min(
                subscribers[unit[0]],
                key=lambda member: (len(assigned[member]), unit not in local[member], member),
            )
            _move(unit, target, owner, assigned)
    _balance(units, subscribers, owner, assigned, local)
    _assign_idle_members(spec, units, assigned, local)
    previous = owned_units(spec, list(assigned), units)
    if _is_complete(spec, units, previous) and _cost(previous, local) <= _cost(assigned, local):
        assigned = previous
    return {member: to_assignment(assigned[member], spec.members[member].assigned) for member in assigned}


def _is_complete(spec: GroupSpec, units: Sequence[Unit], assigned: Mapping[str, set[Unit]]) -> bool:
    """Return whether all partitions are assigned, only to subscribers, and no member is needlessly idle.

    A member is needlessly idle if it has no partition although one of its topics has any."""
    covered = {unit for units_of_member in assigned.values() for unit in units_of_member}
    for member, units_of_member in assigned.items():
        subscribed = spec.members[member].subscribed
        if any(unit[0] not in subscribed for unit in units_of_member):
            return False
        if not units_of_member and any(unit[0] in subscribed for unit in units):
            return False
    return covered == set(units)


def _cost(assigned: Mapping[str, set[Unit]], local: Mapping[str, set[Unit]]) -> tuple[int, int, int]:
    """Return the cost of an assignment as a sort key: imbalance, readers per partition, remote partitions.

    The imbalance is the sum of the squared numbers of partitions per member. The second item is the sum of
    the squared numbers of members per partition, the third the number of assigned partitions without a
    replica in the member's rack."""
    count = Counter(unit for units_of_member in assigned.values() for unit in units_of_member)
    remote = sum(
        unit not in local[member] for member, units_of_member in assigned.items() for unit in units_of_member
    )
    return (
        sum(len(units_of_member) ** 2 for units_of_member in assigned.values()),
        sum(readers * readers for readers in count.values()),
        remote,
    )


def _local_units(spec: GroupSpec) -> Mapping[str, set[Unit]]:
    """Return by member the partitions that are local to it: with a replica in its rack."""
    by_rack: dict[str, set[Unit]] = {}
    for topic, topic_spec in spec.topics.items():
        for partition, racks in enumerate(topic_spec.racks):
            for rack in racks:
                by_rack.setdefault(rack, set()).add((topic, partition))
    nothing: set[Unit] = set()
    return {
        name: by_rack.get(member.rack_id, nothing) if member.rack_id is not None else nothing
        for name, member in spec.members.items()
    }


def _keep_owners(
    spec: GroupSpec, units: Sequence[Unit], assigned: dict[str, set[Unit]], local: Mapping[str, set[Unit]]
) -> dict[Unit, str]:
    """Assign each partition to one of its previous members that still subscribe; return the owners.

    The owner is the least loaded of these members, at a tie one to which the partition is local.
    """
    previous: dict[Unit, list[str]] = {}
    for member in assigned:
        member_spec = spec.members[member]
        for topic, partitions in member_spec.assigned.items():
            if topic in member_spec.subscribed:
                for partition in partitions:
                    previous.setdefault((topic, partition), []).append(member)
    owner: dict[Unit, str] = {}
    # Partitions with several members come last, when the loads are known.
    for unit in sorted((u for u in units if u in previous), key=lambda u: len(previous[u])):
        member = min(previous[unit], key=lambda m: (len(assigned[m]), unit not in local[m], m))
        _move(unit, member, owner, assigned)
    return owner


def _move(unit: Unit, member: str, owner: dict[Unit, str], assigned: dict[str, set[Unit]]) -> None:
    if unit in owner:
        assigned[owner[unit]].discard(unit)
    owner[unit] = member
    assigned[member].add(unit)


def _balance(
    units: Sequence[Unit],
    subscribers: Mapping[Uuid, Sequence[str]],
    owner: dict[Unit, str],
    assigned: dict[str, set[Unit]],
    local: Mapping[str, set[Unit]],
) -> None:
    """Move partitions to members with fewer partitions until no move improves the assignment.

    A move is made if the new owner has at least two fewer than the old one, or has fewer and the partition
    becomes local. Each move lowers the sum of the squared sizes, or keeps it and makes a partition local, so
    this ends.
    """
    moved = True
    while moved:
        moved = False
        for unit in units:
            current = owner[unit]
            size = len(assigned[current])
            if size < 1:
                continue
            target = min(subscribers[unit[0]], key=lambda m: (len(assigned[m]), unit not in local[m], m))
            becomes_local = unit in local[target] and unit not in local[current]
            if len(assigned[target]) + 2 <= size or (becomes_local and len(assigned[target]) < size):
                _move(unit, target, owner, assigned)
                moved = True


def _assign_idle_members(
    spec: GroupSpec, units: Sequence[Unit], assigned: dict[str, set[Unit]], local: Mapping[str, set[Unit]]
) -> None:
    """Assign a partition to each idle member: one that it had before, or the one with the fewest members."""
    count = dict.fromkeys(units, 1)
    idle = [member for member, mine in assigned.items() if not mine]
    readable = {m: [u for u in units if u[0] in spec.members[m].subscribed] for m in idle}
    for member in idle:
        previous = spec.members[member].assigned
        mine = [unit for unit in readable[member] if unit[1] in previous.get(unit[0], ())]
        if mine:
            _add_reader(min(mine, key=lambda u: (count[u], u)), member, count, assigned)
    for member in idle:
        if readable[member] and not assigned[member]:
            best = min(readable[member], key=lambda u: (count[u], u not in local[member], u))
            _add_reader(best, member, count, assigned)
    while _move_sole_reader(spec, units, count, assigned, local):
        pass


def _move_sole_reader(
    spec: GroupSpec,
    units: Sequence[Unit],
    count: dict[Unit, int],
    assigned: dict[str, set[Unit]],
    local: Mapping[str, set[Unit]],
) -> bool:
    """Move one member from its only partition to another one that has at least two members fewer.

    Return whether there was such a member. `count`: number of members by partition; updated.
    """
    for member, units_of_member in assigned.items():
        current = next(iter(units_of_member)) if len(units_of_member) == 1 else None
        if current is None or count[current] < 3:
            continue
        readable = (u for u in units if u[0] in spec.members[member].subscribed)
        best = min(readable, key=lambda u: (count[u], u not in local[member], u))
        if count[best] + 2 <= count[current]:
            units_of_member.clear()
            count[current] -= 1
            _add_reader(best, member, count, assigned)
            return True
    return False


def _add_reader(unit: Unit, member: str, count: dict[Unit, int], assigned: dict[str, set[Unit]]) -> None:
    assigned[member].add(unit)
    count[unit] += 1
