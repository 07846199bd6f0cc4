"""Kafka's uniform algorithm for members with different subscriptions.

    keep      members keep their partitions of topics to which they still subscribe
    fill      unassigned partitions go, topic by topic, to the subscribers with the fewest partitions
    balance   topic by topic, the subscribers with the most partitions give to those with the fewest until
              they differ by at most one; repeated until a round changes nothing, at most 16 times

Topics are ordered by partitions per subscriber, most first, since topics with few subscribers are the hardest
to balance.

Cost: members with the same subscription are grouped, and topics with the same groups of subscribers are
sorted and checked together. Owners are looked up only for topics with partitions to assign or move.
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

__all__ = ["ABSENT", "AssignmentBuilder"]

MAX_ROUNDS = 16
"""Maximum number of rounds in which `balance` visits all topics; each roughly halves the imbalance."""

ABSENT = -1


class Subscribers:
    """The subscribers of a topic, and their imbalance; one object for topics with the same subscribers."""

    __slots__ = ("imbalance", "members", "version")

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.version = ABSENT
        self.imbalance = 0
        """Largest difference between the sizes of these members, as of `version`."""


class AssignmentBuilder:
    """A builder of the assignment, with members numbered in the given order."""

    def __init__(self, spec: GroupSpec, order: Sequence[str]) -> None:
        self.order = order
        groups: dict[frozenset[Uuid], list[int]] = {}
        for index, member in enumerate(order):
            groups.setdefault(spec.members[member].subscribed, []).append(index)
        self.subscribers = _subscribers_by_topic(groups)
        self.counts = partitions_of(spec, sorted(self.subscribers))
        self.subscribed = [spec.members[member].subscribed for member in order]
        self.kept = [
            _still_subscribed(spec.members[member].assigned, subscribed)
            for member, subscribed in zip(order, self.subscribed, strict=True)
        ]
        self.sizes = [sum(map(len, held.values())) if held else 0 for held in self.kept]
        self.version = 0
        """Bumped with every move, which outdates cached differences of sizes."""
        self.owners: dict[Uuid, list[int]] = {}
        """By topic: owner of each partition, for topics that were looked up."""
        self.before: dict[Uuid, list[int]] = {}
        """By topic: previous owner of each partition, for the same topics."""
        self.changed: dict[Uuid, set[int]] = {}
        """By topic: members whose partitions of it changed."""

    def owners_of(self, topic: Uuid) -> list[int]:
        """Return the list of the owners of a topic's partitions; `ABSENT` for one without an owner."""
        owners = self.owners.get(topic)
        if owners is None:
            owners = self.owners[topic] = [ABSENT] * self.counts[topic]
            for member in self.subscribers[topic].members:
                for partition in self.kept[member].get(topic, ()):
                    owners[partition] = member
            self.before[topic] = owners.copy()
        return owners

    def in_balancing_order(self, topics: Iterable[Uuid]) -> list[Uuid]:
        """Return topics by partitions per subscriber (most first), subscribers (fewest first), and id.

        Ids are compared as by Java's UUID: by two signed halves.
        """
        counts, subscribers = self.counts, self.subscribers

        def key(topic: Uuid) -> tuple[float, int, tuple[int, int]]:
            count = len(subscribers[topic].members)
            return -(counts[topic] / count), count, struct.unpack(">qq", topic)

        return sorted(topics, key=key)

    def fill(self) -> None:
        """Assign the unassigned partitions, topic by topic, to the subscribers with the fewest partitions."""
        sizes = self.sizes
        unassigned = self._count_unassigned()
        for topic in self.in_balancing_order(unassigned):
            chosen = _next_receivers(self.subscribers[topic].members, sizes, unassigned[topic])
            if unassigned[topic] == self.counts[topic]:
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

    def move(self, topic: Uuid, partition: int, target: int) -> None:
        """Move a partition from its owner to another member."""
        owners = self.owners_of(topic)
        source = owners[partition]
        owners[partition] = target
        self.sizes[source] -= 1
        self.sizes[target] += 1
        self.changed.setdefault(topic, set()).update((source, target))
        self.version += 1

    def _count_unassigned(self) -> dict[Uuid, int]:
        """Return the number of unassigned partitions by topic, for topics that have any."""
        if sum(self.sizes) == sum(self.counts.values()):
            return {}
        unassigned = dict(self.counts)
        for held in self.kept:
            for topic, some in held.items():
                unassigned[topic] -= len(some)
        return {topic: count for topic, count in unassigned.items() if count}

    def balance(self) -> None:
        """Balance topics in turn until a whole round moves no partition, or for `MAX_ROUNDS` rounds."""
        topics = self.in_balancing_order(
            topic for topic, subscribers in self.subscribers.items() if len(subscribers.members) > 1
        )
        last_changed = ABSENT
        for _ in range(MAX_ROUNDS):
            for index, topic in enumerate(topics):
                if index == last_changed:
                    return  # A whole round without a move.
                if self._balance_topic(topic) or last_changed == ABSENT:
                    last_changed = index

    def _balance_topic(self, topic: Uuid) -> bool:
        """Move partitions of one topic between its subscribers; return whether any moved."""
        subscribers = self.subscribers[topic]
        if subscribers.version != self.version:
            sizes = [self.sizes[member] for member in subscribers.members]
            subscribers.imbalance = max(sizes) - min(sizes)
            subscribers.version = self.version
        if subscribers.imbalance <= 1:
            return False
        owners = self.owners_of(topic)
        partitions_of_owner = _by_owner(owners)
        ranges = _Ranges(subscribers.members, self.sizes)
        moved = False
        while not ranges.is_even():
            source = ranges.next_giver(partitions_of_owner)
            if source == ABSENT:
                break
            partition, target = partitions_of_owner[source].pop(), ranges.next_receiver()
            if ranges.is_even():
                break
            self.move(topic, partition, target)
            moved = True
        return moved

    def assignment(self) -> GroupAssignment:
        """Return the assignment by member id, with the mappings of the input for unchanged members."""
        kept: list[MemberAssignment] = self.kept
        changed: dict[int, dict[Uuid, Partitions]] = {}
        singletons = [
            (partition,) for partition in range(max(map(self.counts.__getitem__, self.changed), default=0))
        ]
        for topic, members in self.changed.items():
            owners = self.owners[topic]
            if len(set(owners)) == len(owners):
                owned: Mapping[int, Sequence[int]] = dict(zip(owners, singletons, strict=False))
            else:
                owned = _by_owner(owners)
            for member in members:
                assigned = changed.get(member)
                if assigned is None:
                    assigned = changed[member] = {**kept[member]} if kept[member] else {}
                if member in owned:
                    assigned[topic] = tuple(owned[member])
                else:
                    assigned.pop(topic, None)
        assignments = list(kept)
        for member, assigned in changed.items():
            if assigned != kept[member]:  # Moved partitions may be back.
                assignments[member] = assigned or NOTHING
        return dict(zip(self.order, assignments, strict=True))


def _subscribers_by_topic(groups: dict[frozenset[Uuid], list[int]]) -> dict[Uuid, Subscribers]:
    """Return the subscribers of each topic; topics with the same subscribers share one value."""
    groups_of: dict[Uuid, list[int]] = {}
    for group, subscribed in enumerate(groups):
        for topic in subscribed:
            groups_of.setdefault(topic, []).append(group)
    members = list(groups.values())
    shared: dict[tuple[int, ...], Subscribers] = {}
    subscribers = {}
    for topic, topic_groups in groups_of.items():
        key = tuple(topic_groups)
        if key not in shared:
            shared[key] = Subscribers(sorted(index for group in key for index in members[group]))
        subscribers[topic] = shared[key]
    return subscribers


def _still_subscribed(held: MemberAssignment, subscribed: frozenset[Uuid]) -> MemberAssignment:
    """Return a member's partitions of topics that it still subscribes to; `held` itself if these are all."""
    if not held or held.keys() <= subscribed:
        return held
    return {topic: some for topic, some in held.items() if topic in subscribed} or NOTHING


def _by_owner(owners: list[int]) -> dict[int, list[int]]:
    """Return the partitions of one topic by owner. `owners`: the owner of each partition."""
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        if owner in owned:
            owned[owner].append(partition)
        else:
            owned[owner] = [partition]
    return owned


def _next_receivers(subscribers: list[int], sizes: list[int], wanted: int) -> list[int]:
    """Return the receivers of `wanted` partitions: for each one the subscriber that then has the fewest."""
    candidates = sorted(subscribers, key=sizes.__getitem__)
    chosen: list[int] = []
    level, end = sizes[candidates[0]], 0
    while len(chosen) < wanted:
        while end < len(candidates) and sizes[candidates[end]] == level:
            end += 1
        chosen += candidates[:end]
        level += 1
    return chosen[:wanted]


class _Ranges:
    """The subscribers of a topic, sorted by size: a range on the left receives, a range on the right gives.

                               gives
            |                 [#   ]#
            | receives        [##<-]##       right of the range: members that own nothing of this topic
       size | [...-> ]        [####]##
            | [######]########[####]##
            +---------------------------
              members

    All members of a range have the same size. When the last one has received (given) a partition, the size of
    the range goes up (down) by one, and members that already have the new size join the range.
    """

    __slots__ = ("giving", "high", "high_end", "high_start", "low", "low_end", "receiving", "row", "sizes")

    def __init__(self, readers: list[int], sizes: list[int]) -> None:
        self.sizes = sizes
        self.row = sorted(readers, key=sizes.__getitem__)
        self.low, self.low_end, self.receiving = sizes[self.row[0]] - 1, 0, 0
        self.high, self.giving = sizes[self.row[-1]] + 1, len(self.row) - 1
        self.high_start = self.high_end = len(self.row)

    def is_even(self) -> bool:
        """Return whether the sizes of the two ranges differ by at most one."""
        return self.high - self.low <= 1

    def next_receiver(self) -> int:
        """Return the member that receives the next partition."""
        row, sizes = self.row, self.sizes
        if self.receiving >= self.low_end:
            self.low += 1
            while self.low_end < len(row) and sizes[row[self.low_end]] == self.low:
                self.low_end += 1
            self.receiving = 0
        self.receiving += 1
        return row[self.receiving - 1]

    def next_giver(self, partitions_of_owner: dict[int, list[int]]) -> int:
        """Return the member that gives the next partition of the topic; `ABSENT` if no member can.

        `partitions_of_owner`: the partitions of the topic by member; a member without any is skipped.
        """
        row = self.row
        while (member := self._next_giver()) != ABSENT and not partitions_of_owner.get(member):
            index, self.high_end = self.giving + 1, self.high_end - 1
            row[index], row[self.high_end] = row[self.high_end], row[index]
        return member

    def _next_giver(self) -> int:
        row, sizes = self.row, self.sizes
        if self.giving < self.high_start:
            if self.high_end <= self.high_start and self.high_start > 0:
                self.high = sizes[row[self.high_start - 1]]  # The range is empty: the next size.
            else:
                self.high -= 1
            while self.high_start > 0 and sizes[row[self.high_start - 1]] == self.high:
                self.high_start -= 1
            self.giving = self.high_end - 1
        if self.giving < 0:
            return ABSENT
        self.giving -= 1
        return row[self.giving + 1]
