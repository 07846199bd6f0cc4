"""Uniform, with readers near to what they read: what Kafka's server side lacks (KAFKA-19387).

A partition is local to a member if one of its replicas is in the member's rack. In this order:

    1. balance        the sizes are those that `uniform` would give, though maybe to others
    2. near           as many partitions as can be are local to their readers
    3. sticky         what can stay stays; but a partition does move if that makes one more local

A reader in another rack costs with every record, a move costs once. Where racks are unknown, and where no
exchange makes more local, the answer is `uniform`'s.

It begins with an answer as balanced as `uniform`'s, of which who has too much gives first what is far from
it, and who wants something takes first what is near. Then it looks for rows of exchanges that end where they
began:

    a partition that is far from its reader goes to a reader near to it, who gives another one on, ..., until
    somebody gives one back to the first; nobody on the way gets something far for something near

Such a row makes one more local and leaves all sizes alone. In a group that subscribes alike there may be one
gap in it: a member that has less than another keeps what it got, and the other gives one on in its place:
they change sizes. When no row is left, no balanced answer of such a group has more that is local (that is the
theorem of augmenting paths).

Cost: members with the same rack, subscription and size are one kind, partitions with the same racks and the
same readers one class. Rows are looked for among kinds and classes; a row that was found is used until a
class is empty.
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

MOST_ROUNDS = 4
"""Exchanges may let a mixed group be balanced further, which may let it exchange again."""
MOST_SEEN = 100
MOST_SEARCHES = 5_000
"""Where a search for a row gives up, and where all of them do, in a group that does not subscribe alike:
there each member may be of another kind. What was not found is looked for when the group is assigned next."""

Unit = tuple[Uuid, int]
Kind = tuple[str | None, frozenset[Uuid], int]
"""Rack, subscription, size."""
Racks = frozenset[str]
NOWHERE: Racks = frozenset()


def assign(spec: GroupSpec) -> GroupAssignment:
    """As balanced as `uniform`, then as near as can be, then as sticky as can be."""
    racks = {member.rack_id for member in spec.members.values()} - {None}
    if not racks or not any(topic.racks for topic in spec.topics.values()):
        return assignor.assign(spec)
    order = sorted(spec.members)
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        return _exchanged(spec, order, _near_first(spec, order), sizes_may_change=True)
    given = assignor.assign(spec)
    for _ in range(MOST_ROUNDS):
        nearer = _exchanged(spec, order, given, sizes_may_change=False)
        given = assignor.assign(_having(spec, nearer))
        if all(given[member] is mine for member, mine in nearer.items()):
            break
    return given


def _exchanged(
    spec: GroupSpec, order: Sequence[str], given: GroupAssignment, *, sizes_may_change: bool
) -> GroupAssignment:
    rows = _Exchange(spec, order, given, sizes_may_change)
    return rows.answer(given) if rows.exchange() else given


def _having(spec: GroupSpec, given: GroupAssignment) -> GroupSpec:
    """The same group, had it been given this."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    return replace(spec, members=members)


def _racks(spec: GroupSpec, topic: Uuid, partition: int) -> Racks:
    racks = spec.topics[topic].racks
    return racks[partition] if partition < len(racks) else NOWHERE


# A group that subscribes alike: who keeps what, who gets what ------------------------------------


def _near_first(spec: GroupSpec, order: Sequence[str]) -> GroupAssignment:
    """As `uniform`, but what is near is kept first and taken first."""
    counts = partitions_of(spec, sorted(spec.members[order[0]].subscribed))
    each = sum(counts.values()) // len(order)
    wanting = frozenset(
        of.rack_id
        for of in spec.members.values()
        if of.rack_id is not None and sum(map(len, of.assigned.values())) < each
    )

    def cut(
        member: MemberSpec, held: MemberAssignment, quota: int, rank: Mapping[Uuid, int], revoked: Runs
    ) -> MemberAssignment:
        def last_to_give(unit: Unit) -> tuple[bool, bool, int, int]:
            racks = _racks(spec, *unit)
            return member.rack_id not in racks, not wanting.isdisjoint(racks), rank[unit[0]], unit[1]

        units = sorted(((topic, p) for topic, some in held.items() for p in some), key=last_to_give)
        revoked.extend((topic, (partition,)) for topic, partition in units[quota:])
        return _together(units[:quota])

    settled = assignor.settle(spec, order, counts, cut)
    _deal(spec, settled)
    return settled.given


def _deal(spec: GroupSpec, settled: assignor.Settled) -> None:
    """First to each what is near to it, of what is near to the fewest; then the rest, to whoever wants it."""
    wanted: dict[str | None, int] = {}
    for member, wants in settled.wanting:
        rack = spec.members[member].rack_id
        wanted[rack] = wanted.get(rack, 0) + wants
    heaps: dict[Racks, list[Unit]] = {}
    for topic, run in settled.free:
        for partition in run:
            heaps.setdefault(_racks(spec, topic, partition), []).append((topic, partition))
    for heap in heaps.values():
        heap.reverse()  # so that the first is at the end
    hardest = sorted(heaps, key=lambda racks: (sum(wanted.get(rack, 0) for rack in racks), sorted(racks)))
    near = {rack: [heaps[racks] for racks in hardest if rack in racks] for rack in wanted}
    taken = [_take(near[spec.members[member].rack_id], wants) for member, wants in settled.wanting]
    for (member, wants), units in zip(settled.wanting, taken, strict=True):
        units += _take([heaps[racks] for racks in hardest], wants - len(units))
        had = [(topic, p) for topic, some in settled.given[member].items() for p in some]
        settled.given[member] = _together(had + units)


def _take(heaps: Iterable[list[Unit]], wants: int) -> list[Unit]:
    units: list[Unit] = []
    for heap in heaps:
        while heap and len(units) < wants:
            units.append(heap.pop())
    return units


def _together(units: Iterable[Unit]) -> MemberAssignment:
    """Partitions by topic."""
    mine: dict[Uuid, list[int]] = {}
    for topic, partition in units:
        mine.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(some)) for topic, some in mine.items()} or NOTHING


# Rows of exchanges ---------------------------------------------------------------------------


class _Class:
    """Partitions that the same kinds may have, and that are near to the same racks."""

    __slots__ = ("racks", "readers")

    def __init__(self, racks: Racks, readers: tuple[frozenset[Uuid], ...]) -> None:
        self.racks = racks
        self.readers = readers
        """The subscriptions that the topic is in."""

    def at(self, kind: Kind) -> bool:
        """Whether it is near to this kind."""
        return kind[0] in self.racks


@dataclass(frozen=True, slots=True)
class Step:
    """A partition of this class goes from a member of one kind to one of another."""

    giver: Kind
    of: _Class
    taker: Kind


class _Exchange:
    """Who has what, by kinds and classes."""

    def __init__(
        self, spec: GroupSpec, order: Sequence[str], given: GroupAssignment, sizes_may_change: bool
    ) -> None:
        self.sizes_may_change = sizes_may_change
        self.classes = _classes(spec)
        self.members: dict[Kind, dict[str, None]] = {}
        self.kinds: dict[frozenset[Uuid], dict[Kind, None]] = {}
        """Kinds by subscription; they stay when they have no members any more."""
        self.kind_of: dict[str, Kind] = {}
        self.owner: dict[Unit, str] = {}
        self.has: dict[Kind, dict[_Class, dict[Unit, None]]] = {}
        """What the members of a kind have of each class; last what is new to its owner: it is given first."""
        self.changed: set[str] = set()
        self.searches = 0
        new: list[tuple[Unit, str]] = []
        for member in order:
            size = sum(map(len, given[member].values()))
            of = spec.members[member]
            kind = of.rack_id, of.subscribed, size
            self._join(member, kind)
            for topic, some in sorted(given[member].items()):
                before = of.assigned.get(topic, ())
                for partition in some:
                    self.owner[topic, partition] = member
                    if given[member] is of.assigned or partition in before:
                        self._put((topic, partition), kind)
                    else:
                        new.append(((topic, partition), member))
        for unit, member in new:
            self._put(unit, self.kind_of[member])

    def _join(self, member: str, kind: Kind) -> None:
        self.kind_of[member] = kind
        self.members.setdefault(kind, {})[member] = None
        self.kinds.setdefault(kind[1], {})[kind] = None
        self.has.setdefault(kind, {})

    def _put(self, unit: Unit, kind: Kind) -> None:
        self.has[kind].setdefault(self.classes[unit], {})[unit] = None

    def exchange(self) -> bool:
        """Follow rows until there is none; whether there was one."""
        again = True
        while again:
            again = False
            for first in list(self.has):
                for of in list(self.has[first]):
                    if not of.at(first):
                        while self.has[first].get(of) and (row := self._row(first, of)):
                            again = True
                            self._follow(row)
        return bool(self.changed)

    def _row(self, first: Kind, of: _Class) -> list[Step] | None:
        """A row that begins with a partition of this class."""
        came: dict[Kind, Step | Kind] = {}
        ahead: deque[Kind] = deque([first])
        gap = self.sizes_may_change
        seen = 0
        self.searches += 1
        if not self.sizes_may_change and self.searches > MOST_SEARCHES:
            return None
        while ahead and (self.sizes_may_change or seen < MOST_SEEN):
            giver = ahead.popleft()
            begins = giver == first
            for given in [of] if begins else [given for given, units in self.has[giver].items() if units]:
                for kind in self._takers(giver, given, near=begins or given.at(giver)):
                    seen += 1
                    if kind not in came:
                        came[kind] = Step(giver, given, kind)
                        ahead.append(kind)
            larger = [kind for kind in self.kinds[giver[1]] if self.members[kind] and kind[2] > giver[2]]
            if gap and larger and not begins:
                gap = False
                for kind in larger:
                    if kind not in came:
                        came[kind] = giver
                        ahead.append(kind)
            if first in came:
                return _told(came, first)
        return None

    def _takers(self, giver: Kind, given: _Class, *, near: bool) -> Iterator[Kind]:
        """Return the possible receivers of a partition: if it is local, only those for which it is local."""
        for subscribed in given.readers:
            for kind in self.kinds[subscribed]:
                if kind != giver and self.members[kind] and (not near or kind[0] in given.racks):
                    yield kind

    def _follow(self, steps: list[Step]) -> None:
        """Use this row: once if it changes sizes, else as long as there is something for each step of it."""
        following = [*steps[1:], steps[0]]
        gap = next((at for at, step in enumerate(steps) if step.taker != following[at].giver), None)
        while all(self.has[step.giver].get(step.of) for step in steps):
            units = [self.has[step.giver][step.of].popitem()[0] for step in steps]
            owners = [self.owner[unit] for unit in units]
            takers = [*owners[1:], owners[0]]
            if gap is not None:
                larger, takers[gap] = takers[gap], next(iter(self.members[steps[gap].taker]))
            for unit, taker in zip(units, takers, strict=True):
                self.owner[unit] = taker
                self._put(unit, self.kind_of[taker])
            self.changed.update(takers, owners)
            if gap is not None:
                self._resize(larger, -1)
                self._resize(takers[gap], +1)
                return

    def _resize(self, member: str, by: int) -> None:
        """The member has one more or less: it is of another kind now, with all that it has."""
        old = self.kind_of[member]
        kind = old[0], old[1], old[2] + by
        del self.members[old][member]
        self._join(member, kind)
        for of, units in self.has[old].items():
            for unit in [unit for unit in units if self.owner[unit] == member]:
                del units[unit]
                self.has[kind].setdefault(of, {})[unit] = None

    def answer(self, given: GroupAssignment) -> GroupAssignment:
        """With what the rows have changed."""
        units: dict[str, list[Unit]] = {}
        for unit, member in self.owner.items():
            if member in self.changed:
                units.setdefault(member, []).append(unit)
        return {
            member: _together(units.get(member, ())) if member in self.changed else mine
            for member, mine in given.items()
        }


def _told(came: Mapping[Kind, Step | Kind], first: Kind) -> list[Step]:
    """Who gives what on the way from the first back to it."""
    steps: list[Step] = []
    kind = first
    while not steps or kind != first:
        step = came[kind]
        if isinstance(step, Step):
            steps.append(step)
            kind = step.giver
        else:
            kind = step
    return steps[::-1]


def _classes(spec: GroupSpec) -> dict[Unit, _Class]:
    """The class of each partition that is read."""
    subscriptions: dict[Uuid, list[frozenset[Uuid]]] = {}
    for subscribed in dict.fromkeys(spec.members[name].subscribed for name in sorted(spec.members)):
        for topic in subscribed:
            subscriptions.setdefault(topic, []).append(subscribed)
    made: dict[tuple[Racks, tuple[frozenset[Uuid], ...]], _Class] = {}
    classes = {}
    for topic in sorted(subscriptions):
        readers = tuple(subscriptions[topic])
        for partition in range(spec.topics[topic].partitions):
            key = _racks(spec, topic, partition), readers
            if key not in made:
                made[key] = _Class(*key)
            classes[topic, partition] = made[key]
    return classes
