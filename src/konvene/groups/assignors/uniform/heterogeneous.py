"""Uniform where members subscribe to different topics. Kafka's algorithm, in our order of members.

    keep     everybody keeps what it had of the topics that it still reads
    fill     what nobody has goes, topic after topic, to the readers of the topic who have least
    balance  topic after topic, readers who have most give to those who have least, until they differ by one
             at most; this again and again until a whole round changes nothing, 16 times at most
    mend     what is left where readings overlap, which Kafka leaves: see `uniform_chains`

Topics come in the order of how many partitions they have for each reader, most first: whoever has few readers
is hard to place.

Cost: members who subscribe alike are one kind, topics with the same kinds of readers are sorted and found in
balance together. Who has a partition is asked only of topics that lack something or have to give something.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Partitions,
    partitions_of,
)
from konvene.groups.assignors.uniform.chains import chains, returns

__all__ = ["Work", "as_kafka", "assign"]

MOST_ROUNDS = 16
"""Each round halves what is out of balance, roughly."""

ABSENT = -1


def assign(spec: GroupSpec, order: Sequence[str]) -> GroupAssignment:
    """The members are numbered in this order; among equals the lower number gets, the higher one gives."""
    work = as_kafka(spec, order)
    chains(work)
    returns(work)
    return work.answer()


def as_kafka(spec: GroupSpec, order: Sequence[str]) -> Work:
    """As far as Kafka goes: exactly its answer, if it takes the members in this order."""
    work = Work(spec, order)
    work.fill()
    work.balance()
    return work


class Readers:
    """The readers of a topic, or of several that are read by the same kinds of members."""

    __slots__ = ("members", "uneven", "version")

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.version = ABSENT
        self.uneven = 0
        """How much the sizes of these members differed when this was the version of all sizes."""


class Work:
    """An assignment in the making. Members are numbers."""

    def __init__(self, spec: GroupSpec, order: Sequence[str]) -> None:
        self.order = order
        kinds: dict[frozenset[Uuid], list[int]] = {}
        for at, member in enumerate(order):
            kinds.setdefault(spec.members[member].subscribed, []).append(at)
        self.readers = _readers(kinds)
        self.counts = partitions_of(spec, sorted(self.readers))
        self.subscribed = [spec.members[member].subscribed for member in order]
        self.kept = [
            _still_read(spec.members[member].assigned, subscribed)
            for member, subscribed in zip(order, self.subscribed, strict=True)
        ]
        self.sizes = [sum(map(len, held.values())) if held else 0 for held in self.kept]
        self.version = 0
        """Goes up with every move: what was known of sizes is old then."""
        self.owners: dict[Uuid, list[int]] = {}
        """Who has which partition, of the topics that were looked at."""
        self.before: dict[Uuid, list[int]] = {}
        """Who had it when the work began, of the same topics."""
        self.changed: dict[Uuid, set[int]] = {}
        """Who has other partitions of a topic than before."""

    def owners_of(self, topic: Uuid) -> list[int]:
        """Who has each of the topic's partitions."""
        owners = self.owners.get(topic)
        if owners is None:
            owners = self.owners[topic] = [ABSENT] * self.counts[topic]
            for member in self.readers[topic].members:
                for partition in self.kept[member].get(topic, ()):
                    owners[partition] = member
            self.before[topic] = owners.copy()
        return owners

    def in_order(self, topics: Iterable[Uuid]) -> list[Uuid]:
        """Most partitions for each reader first, then fewest readers, then by id, whose halves have signs."""
        counts, readers = self.counts, self.readers

        def key(topic: Uuid) -> tuple[float, int, tuple[int, int]]:
            of = len(readers[topic].members)
            return -(counts[topic] / of), of, struct.unpack(">qq", topic)

        return sorted(topics, key=key)

    def fill(self) -> None:
        """Assign unassigned partitions to the least loaded readers."""
        sizes = self.sizes
        lacking = self._lacking()
        for topic in self.in_order(lacking):
            chosen = _lightest(self.readers[topic].members, sizes, lacking[topic])
            if lacking[topic] == self.counts[topic]:
                self.before[topic] = [ABSENT] * len(chosen)
                self.owners[topic] = chosen
            else:
                owners = self.owners_of(topic)
                free = [partition for partition, owner in enumerate(owners) if owner == ABSENT]
                for partition, member in zip(free, chosen, strict=True):
                    owners[partition] = member
            for member in chosen:
                sizes[member] += 1
            self.changed[topic] = set(chosen)
            self.version += 1

    def move(self, topic: Uuid, partition: int, taker: int) -> None:
        """From its owner to another."""
        owners = self.owners_of(topic)
        giver = owners[partition]
        owners[partition] = taker
        self.sizes[giver] -= 1
        self.sizes[taker] += 1
        self.changed.setdefault(topic, set()).update((giver, taker))
        self.version += 1

    def _lacking(self) -> dict[Uuid, int]:
        """Return topics with unassigned partitions, and how many."""
        if sum(self.sizes) == sum(self.counts.values()):
            return {}
        lacking = dict(self.counts)
        for held in self.kept:
            for topic, some in held.items():
                lacking[topic] -= len(some)
        return {topic: lacks for topic, lacks in lacking.items() if lacks}

    def balance(self) -> None:
        """Move partitions until no topic has readers that differ by more than one, or nothing helps."""
        topics = self.in_order(topic for topic, of in self.readers.items() if len(of.members) > 1)
        last = ABSENT
        for _ in range(MOST_ROUNDS):
            for at, topic in enumerate(topics):
                if at == last:
                    return  # a whole round, and nothing moved
                if self._balance_topic(topic) or last == ABSENT:
                    last = at

    def _balance_topic(self, topic: Uuid) -> bool:
        """Whether something moved."""
        readers = self.readers[topic]
        if readers.version != self.version:
            sizes = [self.sizes[member] for member in readers.members]
            readers.uneven = max(sizes) - min(sizes)
            readers.version = self.version
        if readers.uneven <= 1:
            return False
        owners = self.owners_of(topic)
        has = _by_owner(owners)
        scales = _Scales(readers.members, self.sizes)
        moved = False
        while not scales.are_even():
            giver = scales.heaviest(has)
            if giver == ABSENT:
                break
            partition, taker = has[giver].pop(), scales.lightest()
            if scales.are_even():
                break
            self.move(topic, partition, taker)
            moved = True
        return moved

    def answer(self) -> GroupAssignment:
        """The mappings that came in where nothing changed, new ones where something did."""
        kept: list[MemberAssignment] = self.kept
        new: dict[int, dict[Uuid, Partitions]] = {}
        alone = [
            (partition,) for partition in range(max(map(self.counts.__getitem__, self.changed), default=0))
        ]
        for topic, members in self.changed.items():
            owners = self.owners[topic]
            if len(set(owners)) == len(owners):
                has: Mapping[int, Sequence[int]] = dict(zip(owners, alone, strict=False))
            else:
                has = _by_owner(owners)
            for member in members:
                mine = new.get(member)
                if mine is None:
                    mine = new[member] = {**kept[member]} if kept[member] else {}
                if member in has:
                    mine[topic] = tuple(has[member])
                else:
                    mine.pop(topic, None)
        given = list(kept)
        for member, mine in new.items():
            if mine != kept[member]:  # what moved may have come back
                given[member] = mine or NOTHING
        return dict(zip(self.order, given, strict=True))


def _readers(kinds: dict[frozenset[Uuid], list[int]]) -> dict[Uuid, Readers]:
    """Who reads each topic; topics with the same kinds of readers share one value."""
    kinds_of: dict[Uuid, list[int]] = {}
    for kind, subscribed in enumerate(kinds):
        for topic in subscribed:
            kinds_of.setdefault(topic, []).append(kind)
    members = list(kinds.values())
    shared: dict[tuple[int, ...], Readers] = {}
    readers = {}
    for topic, kinds_of_topic in kinds_of.items():
        key = tuple(kinds_of_topic)
        if key not in shared:
            shared[key] = Readers(sorted(at for kind in key for at in members[kind]))
        readers[topic] = shared[key]
    return readers


def _still_read(held: MemberAssignment, subscribed: frozenset[Uuid]) -> MemberAssignment:
    """The same mapping, if all of it is."""
    if not held or held.keys() <= subscribed:
        return held
    return {topic: some for topic, some in held.items() if topic in subscribed} or NOTHING


def _by_owner(owners: list[int]) -> dict[int, list[int]]:
    """Who has which partitions."""
    has: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        if owner in has:
            has[owner].append(partition)
        else:
            has[owner] = [partition]
    return has


def _lightest(readers: list[int], sizes: list[int], wanted: int) -> list[int]:
    """Who gets so many partitions, one after another: whoever has least, as if each were given at once."""
    row = sorted(readers, key=sizes.__getitem__)
    chosen: list[int] = []
    level, end = sizes[row[0]], 0
    while len(chosen) < wanted:
        while end < len(row) and sizes[row[end]] == level:
            end += 1
        chosen += row[:end]
        level += 1
    return chosen[:wanted]


class _Scales:
    """The readers of a topic by size. From the left a growing range receives, from the right one gives.

                               gives
            |                 [#   ]#
            | receives        [##<-]##       right of the range: members with nothing of this topic to give
       size | [...-> ]        [####]##
            | [######]########[####]##
            +---------------------------
              members

    Within a range all have the same size; when the last of them has received (given), the size of the range
    goes up (down) by one, and whoever had that size all along is taken in.
    """

    __slots__ = ("giving", "high", "high_end", "high_start", "low", "low_end", "receiving", "row", "sizes")

    def __init__(self, readers: list[int], sizes: list[int]) -> None:
        self.sizes = sizes
        self.row = sorted(readers, key=sizes.__getitem__)
        self.low, self.low_end, self.receiving = sizes[self.row[0]] - 1, 0, 0
        self.high, self.giving = sizes[self.row[-1]] + 1, len(self.row) - 1
        self.high_start = self.high_end = len(self.row)

    def are_even(self) -> bool:
        """Whether the ranges differ by one at most."""
        return self.high - self.low <= 1

    def lightest(self) -> int:
        """Who receives next."""
        row, sizes = self.row, self.sizes
        if self.receiving >= self.low_end:
            self.low += 1
            while self.low_end < len(row) and sizes[row[self.low_end]] == self.low:
                self.low_end += 1
            self.receiving = 0
        self.receiving += 1
        return row[self.receiving - 1]

    def heaviest(self, has: dict[int, list[int]]) -> int:
        """Who gives next, of those who have something; `ABSENT` if nobody has."""
        row = self.row
        while (member := self._next_giver()) != ABSENT and not has.get(member):
            at, self.high_end = self.giving + 1, self.high_end - 1
            row[at], row[self.high_end] = row[self.high_end], row[at]
        return member

    def _next_giver(self) -> int:
        row, sizes = self.row, self.sizes
        if self.giving < self.high_start:
            if self.high_end <= self.high_start and self.high_start > 0:
                self.high = sizes[row[self.high_start - 1]]  # nobody in the range has anything: the next size
            else:
                self.high -= 1
            while self.high_start > 0 and sizes[row[self.high_start - 1]] == self.high:
                self.high_start -= 1
            self.giving = self.high_end - 1
        if self.giving < 0:
            return ABSENT
        self.giving -= 1
        return row[self.giving + 1]
