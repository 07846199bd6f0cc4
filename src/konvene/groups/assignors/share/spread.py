"""`spread`, an assignor of share groups that Kafka does not have: rack and load over all topics at once.

`simple` gives every partition as many members as any one needs, and where members read different topics it
looks at each topic alone: one member may end with a bit of everything, and another with little. Here

    each partition has one member, and more only where somebody would have nothing to read;
    members then have equally many of all topics together, as far as what they read allows;
    a partition is with a member of one of its racks, where that costs no balance;
    and all stay where they are, where no other answer is better.

So each member fetches from as few partitions as can be, and as few members as can be lock the records of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import GroupAssignment, GroupSpec, partitions_of
from konvene.groups.assignors.share.simple import Unit, held, told, units_of


def assign(spec: GroupSpec) -> GroupAssignment:
    """See the top of this file. Raises `PartitionAssignorError` for a topic that is not there."""
    topics = sorted({topic for member in spec.members.values() for topic in member.subscribed})
    partitions_of(spec, topics)
    readers = {t: [m for m in sorted(spec.members) if t in spec.members[m].subscribed] for t in topics}
    # What few can read comes first: with the others it is made up for.
    units = units_of(spec, sorted(topics, key=lambda topic: len(readers[topic])))
    has: dict[str, set[Unit]] = {member: set() for member in sorted(spec.members)}
    near = _near(spec)
    holder = _kept(spec, units, has, near)
    for unit in units:
        if unit not in holder:
            taker = min(readers[unit[0]], key=lambda m: (len(has[m]), unit not in near[m], m))
            _give(unit, taker, holder, has)
    _even_out(units, readers, holder, has, near)
    _employ(spec, units, has, near)
    before = held(spec, list(has), units)
    if _is_whole(spec, units, before) and _cost(before, near) <= _cost(has, near):
        has = before
    return {member: told(has[member], spec.members[member].assigned) for member in has}


def _is_whole(spec: GroupSpec, units: Sequence[Unit], has: Mapping[str, set[Unit]]) -> bool:
    """Whether everybody has only what may be given out, nobody idles who could read, and all is read."""
    given = {unit for mine in has.values() for unit in mine}
    for member, mine in has.items():
        reads = spec.members[member].subscribed
        if any(unit[0] not in reads for unit in mine):
            return False
        if not mine and any(unit[0] in reads for unit in units):
            return False
    return given == set(units)


def _cost(has: Mapping[str, set[Unit]], near: Mapping[str, set[Unit]]) -> tuple[int, int, int]:
    """The less the better: how uneven members are, how uneven partitions, how many are far away."""
    count = Counter(unit for mine in has.values() for unit in mine)
    far = sum(unit not in near[member] for member, mine in has.items() for unit in mine)
    return sum(len(mine) ** 2 for mine in has.values()), sum(n * n for n in count.values()), far


def _near(spec: GroupSpec) -> Mapping[str, set[Unit]]:
    """By member, the partitions that have a replica in its rack."""
    by_rack: dict[str, set[Unit]] = {}
    for topic, known in spec.topics.items():
        for partition, racks in enumerate(known.racks):
            for rack in racks:
                by_rack.setdefault(rack, set()).add((topic, partition))
    nothing: set[Unit] = set()
    return {
        name: by_rack.get(of.rack_id, nothing) if of.rack_id is not None else nothing
        for name, of in spec.members.items()
    }


def _kept(
    spec: GroupSpec, units: Sequence[Unit], has: dict[str, set[Unit]], near: Mapping[str, set[Unit]]
) -> dict[Unit, str]:
    """Each partition with one of those who had it and still read it: who has least, a near one first."""
    before: dict[Unit, list[str]] = {}
    for member in has:
        of = spec.members[member]
        for topic, partitions in of.assigned.items():
            if topic in of.subscribed:
                for partition in partitions:
                    before.setdefault((topic, partition), []).append(member)
    holder: dict[Unit, str] = {}
    # Where there is a choice it is made last, when it is known who has how many.
    for unit in sorted((u for u in units if u in before), key=lambda u: len(before[u])):
        one = min(before[unit], key=lambda m: (len(has[m]), unit not in near[m], m))
        _give(unit, one, holder, has)
    return holder


def _give(unit: Unit, member: str, holder: dict[Unit, str], has: dict[str, set[Unit]]) -> None:
    if unit in holder:
        has[holder[unit]].discard(unit)
    holder[unit] = member
    has[member].add(unit)


def _even_out(
    units: Sequence[Unit],
    readers: Mapping[Uuid, Sequence[str]],
    holder: dict[Unit, str],
    has: dict[str, set[Unit]],
    near: Mapping[str, set[Unit]],
) -> None:
    """Move partitions to who has at least two less, and to who is nearer and has less.

    A move makes the sum of squares smaller, or leaves it and brings a partition nearer: there is an end."""
    moved = True
    while moved:
        moved = False
        for unit in units:
            mine = holder[unit]
            size = len(has[mine])
            if size < 1:
                continue
            other = min(readers[unit[0]], key=lambda m: (len(has[m]), unit not in near[m], m))
            closer = unit in near[other] and unit not in near[mine]
            if len(has[other]) + 2 <= size or (closer and len(has[other]) < size):
                _give(unit, other, holder, has)
                moved = True


def _employ(
    spec: GroupSpec, units: Sequence[Unit], has: dict[str, set[Unit]], near: Mapping[str, set[Unit]]
) -> None:
    """Who has nothing reads beside others: what it read before, or where fewest do."""
    count = dict.fromkeys(units, 1)
    idle = [member for member, mine in has.items() if not mine]
    readable = {m: [u for u in units if u[0] in spec.members[m].subscribed] for m in idle}
    for member in idle:
        before = spec.members[member].assigned
        mine = [unit for unit in readable[member] if unit[1] in before.get(unit[0], ())]
        if mine:
            _join(min(mine, key=lambda u: (count[u], u)), member, count, has)
    for member in idle:
        if readable[member] and not has[member]:
            best = min(readable[member], key=lambda u: (count[u], u not in near[member], u))
            _join(best, member, count, has)
    while _one_moves(spec, units, count, has, near):
        pass


def _one_moves(
    spec: GroupSpec,
    units: Sequence[Unit],
    count: dict[Unit, int],
    has: dict[str, set[Unit]],
    near: Mapping[str, set[Unit]],
) -> bool:
    """Move a member that reads nothing else to a partition with at least two readers less."""
    for member, mine in has.items():
        crowded = next(iter(mine)) if len(mine) == 1 else None
        if crowded is None or count[crowded] < 3:
            continue
        readable = (u for u in units if u[0] in spec.members[member].subscribed)
        best = min(readable, key=lambda u: (count[u], u not in near[member], u))
        if count[best] + 2 <= count[crowded]:
            mine.clear()
            count[crowded] -= 1
            _join(best, member, count, has)
            return True
    return False


def _join(unit: Unit, member: str, count: dict[Unit, int], has: dict[str, set[Unit]]) -> None:
    has[member].add(unit)
    count[unit] += 1
