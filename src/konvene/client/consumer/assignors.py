"""Client-side assignors of the classic protocol, which the leader of a group runs. Pure functions.

The input is the topics and the subscription of each member, with the partitions that it owns; the output is a
list of partitions for each member. `range` and `roundrobin` compute the same assignments as Kafka's, so that
a change of the leader between clients moves no partitions. `cooperative-sticky` computes a complete
assignment that is at least as balanced as Kafka's and, for the same balance, at least as sticky.

Members are ordered as in Kafka: static members by instance id, then the others by member id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from konvene.client.consumer.protocol import Subscription
from konvene.client.net.cluster import TopicPartition

__all__ = ["ASSIGNORS", "Assignor", "TopicInfo", "cooperative_sticky", "range_", "roundrobin"]


class TopicInfo(NamedTuple):
    """The number of partitions of a topic, and the racks of the replicas of each partition.

    `racks` is empty if racks do not matter."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()


Topics = Mapping[str, TopicInfo]
Members = Mapping[str, Subscription]
Assignment = dict[str, list[TopicPartition]]


class Assignor(NamedTuple):
    """A client-side assignor, with the protocol name by which the members of a group agree on it."""

    name: str
    assign: Callable[[Topics, Members], Assignment]
    cooperative: bool
    """Whether members keep their partitions during a rebalance and revoke only those that move."""


# range ----------------------------------------------------------------------------------------


class _RangeTopic:
    """State of one topic during a range assignment."""

    def __init__(self, topic: str, info: TopicInfo, consumers: tuple[str, ...], racks: Mapping[str, str]):
        self.topic = topic
        self.consumers = consumers
        self.rack_of = {c: racks.get(c) for c in consumers}
        self.left = list(range(info.partitions))
        self.count = dict.fromkeys(consumers, 0)
        self.share, self.extra = divmod(info.partitions, len(consumers)) if consumers else (0, 0)
        wanted = {rack for rack in self.rack_of.values() if rack}
        self.racks = info.racks if wanted else ()
        everywhere = frozenset().union(*self.racks)
        # Racks help where a consumer's rack has some partitions and not all partitions are on all racks.
        self.rack_aware = bool(wanted & everywhere) and any(r != everywhere for r in self.racks)

    def matches(self, consumer: str, partition: int) -> bool:
        rack = self.rack_of[consumer]
        return rack is None or (partition < len(self.racks) and rack in self.racks[partition])

    def room(self, consumer: str) -> int:
        return max(0, self.share + (1 if self.extra > 0 else 0) - self.count[consumer])

    def give(self, consumer: str, partitions: list[int], out: Assignment) -> None:
        out[consumer] += (TopicPartition(self.topic, p) for p in partitions)
        self.count[consumer] += len(partitions)
        if self.count[consumer] > self.share:
            self.extra -= 1
        taken = set(partitions)
        self.left = [p for p in self.left if p not in taken]

    def give_ranges(self, out: Assignment, *, matching: bool) -> None:
        for consumer in self.consumers:
            fit = [p for p in self.left if not matching or self.matches(consumer, p)][: self.room(consumer)]
            if fit:
                self.give(consumer, fit, out)


def range_(topics: Topics, members: Members) -> Assignment:
    """Assign consecutive partitions of each topic to its consumers in order, matching racks first."""
    order = _in_order(members)
    racks = {m: s.rack for m, s in members.items() if s.rack}
    states = []
    for topic, info in sorted(topics.items()):
        if info.partitions:
            consumers = tuple(m for m in order if topic in members[m].topics)
            states.append(_RangeTopic(topic, info, consumers, racks))
    out: Assignment = {m: [] for m in members}
    rack_aware = any(s.rack_aware for s in states)
    if rack_aware:
        _range_by_rack(states, out)
    for state in states:
        state.give_ranges(out, matching=False)
    return {m: sorted(given) for m, given in out.items()}


def _range_by_rack(states: list[_RangeTopic], out: Assignment) -> None:
    """Assign partitions to consumers in their rack.

    Topics with the same consumers and the same number of partitions are co-partitioned: partition N of each
    goes to the same consumer."""
    together: dict[tuple[tuple[str, ...], int], list[_RangeTopic]] = {}
    for state in states:
        together.setdefault((state.consumers, len(state.racks)), []).append(state)
    for (consumers, partitions), same in together.items():
        if len(same) == 1:
            if same[0].rack_aware:
                same[0].give_ranges(out, matching=True)
            continue
        remaining = list(consumers)
        for p in range(partitions):
            fitting = (c for c in remaining if all(s.matches(c, p) and s.room(c) > 0 for s in same))
            consumer = next(fitting, None)
            if consumer is None:
                continue
            for state in same:
                state.give(consumer, [p], out)
            if not any(s.room(consumer) > 0 for s in same):
                remaining.remove(consumer)


# round robin ----------------------------------------------------------------------------------


def roundrobin(topics: Topics, members: Members) -> Assignment:
    """Assign all partitions in order, one to each subscribed member in turn."""
    order = _in_order(members)
    out: Assignment = {m: [] for m in members}
    wanted = {topic for s in members.values() for topic in s.topics}
    at = 0
    for topic in sorted(wanted & topics.keys()):
        for p in range(topics[topic].partitions):
            while topic not in members[order[at]].topics:
                at = (at + 1) % len(order)
            out[order[at]].append(TopicPartition(topic, p))
            at = (at + 1) % len(order)
    return out


# sticky ---------------------------------------------------------------------------------------


def cooperative_sticky(topics: Topics, members: Members) -> Assignment:
    """Return the sticky assignment, without the partitions that another member must revoke first.

    They are assigned in the next rebalance, when their owners have rejoined without them."""
    owner = _owners(topics, members)
    wanted = _sticky(topics, members, owner)
    claimed = {tp: m for m, s in members.items() for tp in s.owned}
    return {
        m: [tp for tp in given if claimed.get(tp, m) == m or owner.get(tp) == m]
        for m, given in wanted.items()
    }


def _owners(topics: Topics, members: Members) -> dict[TopicPartition, str]:
    """Return the owner of each existing partition that a member claims to own and still subscribes to.

    The claim of the newest generation counts; if several members have that one, there is no owner."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in _in_order(members):
        subscription = members[member]
        for tp in subscription.owned:
            exists = tp.topic in topics and 0 <= tp.partition < topics[tp.topic].partitions
            if exists and tp.topic in subscription.topics:
                claims.setdefault(tp, []).append((subscription.generation, member))
    owner = {}
    for tp, rows in claims.items():
        newest = max(generation for generation, _ in rows)
        newest_members = [m for generation, m in rows if generation == newest]
        if len(newest_members) == 1:
            owner[tp] = newest_members[0]
    return owner


def _sticky(topics: Topics, members: Members, owner: Mapping[TopicPartition, str]) -> Assignment:
    """Keep owned partitions, assign the others to the least loaded members, then balance with few moves."""
    order = _in_order(members)
    consumers = {t: [m for m in order if t in members[m].topics] for t in sorted(topics)}
    held: dict[str, set[TopicPartition]] = {m: set() for m in order}
    unassigned = []
    for topic, interested in consumers.items():
        for tp in (TopicPartition(topic, p) for p in range(topics[topic].partitions)):
            if tp in owner:
                held[owner[tp]].add(tp)
            elif interested:
                unassigned.append(tp)
    unassigned.sort(key=lambda tp: (len(consumers[tp.topic]), tp))  # The hardest to rank first.
    rank = {m: i for i, m in enumerate(order)}
    for tp in unassigned:
        held[min(consumers[tp.topic], key=lambda m: (len(held[m]), rank[m]))].add(tp)
    while _move_one(order, rank, consumers, held, owner):
        pass
    return {m: sorted(held[m]) for m in members}


def _move_one(
    order: list[str], rank: Mapping[str, int], consumers: Mapping[str, list[str]],
    held: dict[str, set[TopicPartition]], owner: Mapping[TopicPartition, str],
) -> bool:  # fmt: skip
    """Balance by one step: a member gives up a partition, and one that had at least two less gains one.

    Other members pass partitions on between them if needed. Returns False if no such step exists."""
    least = min(map(len, held.values()), default=0)
    for giver in sorted(order, key=lambda m: (-len(held[m]), rank[m])):
        if len(held[giver]) < least + 2:
            return False
        path = _cheapest_moves(giver, rank, consumers, held, owner)
        if path:
            for source, target, tp in path:
                held[source].remove(tp)
                held[target].add(tp)
            return True
    return False


def _cheapest_moves(
    giver: str, rank: Mapping[str, int], consumers: Mapping[str, list[str]],
    held: Mapping[str, set[TopicPartition]], owner: Mapping[TopicPartition, str],
) -> list[tuple[str, str, TopicPartition]]:  # fmt: skip
    """Return the cheapest chain of moves from `giver` to a member with at least two partitions less.

    A move is (source, target, partition). It costs 2, one more if it takes the partition from its previous
    owner, and one less if it returns the partition there."""
    most = len(held[giver])
    best: dict[str, tuple[int, list[tuple[str, str, TopicPartition]]]] = {giver: (0, [])}
    heap: list[tuple[int, int, int, str]] = [(0, 0, rank[giver], giver)]
    done: set[str] = set()
    while heap:
        cost, _, _, member = heapq.heappop(heap)
        if member in done:
            continue
        done.add(member)
        if len(held[member]) <= most - 2:
            return best[member][1]
        for tp in sorted(held[member], key=lambda tp: (owner.get(tp) == member, tp)):
            taken = 1 if owner.get(tp) == member else 0
            for other in consumers[tp.topic]:
                back = -1 if owner.get(tp) == other else 0
                price = cost + 2 + taken + back
                if other not in done and (other not in best or price < best[other][0]):
                    best[other] = (price, [*best[member][1], (member, other, tp)])
                    heapq.heappush(heap, (price, len(held[other]), rank[other], other))
    return []


def _in_order(members: Members) -> list[str]:
    def rank(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=rank)


def topics_of(members: Members) -> Iterable[str]:
    """Return all subscribed topics, sorted."""
    return sorted({topic for s in members.values() for topic in s.topics})


ASSIGNORS: dict[str, Assignor] = {
    row.name: row
    for row in (
        Assignor("range", range_, cooperative=False),
        Assignor("roundrobin", roundrobin, cooperative=False),
        Assignor("cooperative-sticky", cooperative_sticky, cooperative=True),
    )
}
"""The assignors of the classic protocol by the names that members agree on."""
