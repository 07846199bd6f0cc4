"""`simple`, Kafka's assignor of share groups: partitions may have many members, and members many partitions.

Each partition is to have as many members as any needs to have so that nobody is idle: ceil(members /
partitions). Members then have equally many, one more or less. Where all read the same topics these are shared
out together, else each topic for itself among those who read it.

What members have they keep, as far as that leaves the balance. It goes from who has too many, first where
most others have it as well; then from partitions that too many have; then what lacks members is handed round.
A partition may lack one in the end, if all who have room have it already.
"""

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
    """See the top of this file. Raises `PartitionAssignorError` for a topic that is not there."""
    members = sorted(spec.members)
    topics = sorted({topic for member in spec.members.values() for topic in member.subscribed})
    partitions_of(spec, topics)
    given: dict[str, list[Unit]] = {member: [] for member in members}
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        _share_out(spec, members, units_of(spec, topics), given)
    else:
        readers = {t: [m for m in members if t in spec.members[m].subscribed] for t in topics}
        # What few can read comes first: with the others it is made up for.
        for topic in sorted(topics, key=lambda one: len(readers[one])):
            _share_out(spec, readers[topic], units_of(spec, (topic,)), given)
    return {member: told(given[member], spec.members[member].assigned) for member in members}


def units_of(spec: GroupSpec, topics: Iterable[Uuid]) -> list[Unit]:
    """What may be given out of these topics."""
    return [
        (topic, partition)
        for topic in topics
        for known in (spec.topics[topic],)
        for partition in (range(known.partitions) if known.assignable is None else known.assignable)
    ]


def told(units: Iterable[Unit], before: MemberAssignment) -> MemberAssignment:
    """The assignment of a member: the very same mapping as before, where it is the same."""
    mine: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(units):
        mine.setdefault(topic, []).append(partition)
    found = {topic: tuple(some) for topic, some in mine.items()}
    return before if found == before else found or NOTHING


def held(spec: GroupSpec, members: Sequence[str], units: Iterable[Unit]) -> dict[str, set[Unit]]:
    """What each of these members has of these units."""
    there = set(units)
    return {
        member: {
            unit
            for topic, some in spec.members[member].assigned.items()
            for partition in some
            if (unit := (topic, partition)) in there
        }
        for member in members
    }


def _share_out(
    spec: GroupSpec, members: Sequence[str], units: Sequence[Unit], given: Mapping[str, list[Unit]]
) -> None:
    if not units or not members:
        return
    sharing = -(-len(members) // len(units))
    least, more = divmod(sharing * len(units), len(members))
    has = held(spec, members, units)
    # Who has little of other topics has one more of this one; among those, who has them already.
    first = sorted(members, key=lambda name: (-len(has[name]), len(given[name]), name))
    wanted = {member: least + (index < more) for index, member in enumerate(first)}
    holders = Counter(unit for mine in has.values() for unit in mine)
    for member in members:
        mine = has[member]
        if len(mine) > wanted[member]:
            crowded = sorted(mine, key=lambda unit: (-holders[unit], unit))
            for unit in crowded[: len(mine) - wanted[member]]:
                mine.remove(unit)
                holders[unit] -= 1
    _thin_out(has, holders, sharing)
    _hand_round(has, holders, units, wanted, sharing)
    for member in members:
        given[member].extend(has[member])


def _thin_out(has: Mapping[str, set[Unit]], holders: Counter[Unit], sharing: int) -> None:
    """No unit has more members than it should."""
    over = {unit for unit, count in holders.items() if count > sharing}
    if not over:
        return
    for member in sorted(has, key=lambda name: (-len(has[name]), name)):
        for unit in sorted(has[member] & over):
            if holders[unit] > sharing:
                has[member].remove(unit)
                holders[unit] -= 1


def _hand_round(
    has: Mapping[str, set[Unit]],
    holders: Counter[Unit],
    units: Sequence[Unit],
    wanted: Mapping[str, int],
    sharing: int,
) -> None:
    """Units that lack members, to members that have room: most lacking first, and to who has most room."""
    room = [(len(has[member]) - wanted[member], index, member) for index, member in enumerate(has)]
    room = [entry for entry in room if entry[0] < 0]
    heapify(room)
    for unit in sorted(units, key=lambda one: holders[one]):
        passed: list[tuple[int, int, str]] = []
        while holders[unit] < sharing and room:
            left, index, member = heappop(room)
            if unit not in has[member]:
                has[member].add(unit)
                holders[unit] += 1
                left += 1
            if left:
                passed.append((left, index, member))
        for entry in passed:
            heappush(room, entry)
