"""What Kafka's uniform assignor leaves undone where readings overlap, as far as it costs no move.

Kafka looks at one topic at a time. Members of {a}, {a, b} and {b} with 9, 10 and 11 stay so, though one of b
could go to the second, who would give one of a to the first. Such a row of hand-overs is a chain: somebody
gives to a reader of the same topic, who gives something else on, until it ends with somebody who has two less
than the first. An assignment is as balanced as can be if and only if there is no chain (Harvey and others,
semi-matchings, 2006).

    chain      from a member with n to one with n - 2 or less: both come nearer. Only of partitions that are
               new to their owners, so that nothing moves that would have stayed
    return     a partition goes back to who had it before, if that member has less, or has something else that
               is new to it and that the other one reads: then they change. Not where somebody would then read
               the same as one who has two more

So the answer is never less balanced than Kafka's work was before, and never moves more. An unchanged group
has nothing new, and is left alone even if a chain of old partitions would make it better.

Cost: nothing where members who read anything in common differ by one at most, which is where Kafka's work
ends unless readings overlap. A search that finds nothing closes all that it saw, for nobody there can have a
chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid

if TYPE_CHECKING:
    from konvene.groups.assignors.uniform.heterogeneous import Work

__all__ = ["chains", "returns"]

Holdings = list[dict[Uuid, set[int]]]
"""Of each member its partitions."""
Step = tuple[int, Uuid]
"""Who gives, and of which topic."""

ABSENT = -1


def chains(work: Work) -> None:
    """Follow chains until there is none."""
    uneven = [member for part in _parts(work) if _spread(work, part) > 1 for member in part]
    if not uneven:
        return
    holdings = _newly_held(work)
    open_members = set(uneven)
    while open_members:
        first = max(sorted(open_members), key=work.sizes.__getitem__)
        came, last = _search(work, holdings, first, open_members)
        if last == ABSENT:
            open_members -= came.keys() | {first}
            continue
        while last != first:
            giver, topic = came[last]
            partition = _chosen(work, topic, holdings[giver][topic], last)
            holdings[giver][topic].remove(partition)
            if work.before[topic][partition] != last:
                holdings[last].setdefault(topic, set()).add(partition)
            work.move(topic, partition, last)
            last = giver


def _parts(work: Work) -> Iterator[list[int]]:
    """Members who have topics in common, be it through others, topic by topic."""
    root = list(range(len(work.order)))

    def root_of(member: int) -> int:
        while root[member] != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    seen = set()
    for topic in work.counts:
        readers = work.readers[topic]
        if readers in seen:
            continue
        seen.add(readers)
        one = root_of(readers.members[0])
        for member in readers.members:
            root[root_of(member)] = one
    parts: dict[int, list[int]] = {}
    for member in range(len(root)):
        parts.setdefault(root_of(member), []).append(member)
    return iter(parts.values())


def _spread(work: Work, members: list[int]) -> int:
    sizes = [work.sizes[member] for member in members]
    return max(sizes) - min(sizes)


def _newly_held(work: Work) -> Holdings:
    holdings: Holdings = [{} for _ in work.order]
    for topic in work.changed:
        for partition, (was, now) in enumerate(zip(work.before[topic], work.owners[topic], strict=True)):
            if was != now:
                holdings[now].setdefault(topic, set()).add(partition)
    return holdings


def _search(
    work: Work, holdings: Holdings, first: int, open_members: set[int]
) -> tuple[dict[int, Step], int]:
    """Who is reached from this member, and how; and the nearest one who has two less, or nobody."""
    enough = work.sizes[first] - 2
    came: dict[int, Step] = {}
    seen: set[Uuid] = set()
    ahead = deque([first])
    while ahead:
        giver = ahead.popleft()
        for topic, some in holdings[giver].items():
            if not some or topic in seen:
                continue
            seen.add(topic)
            for taker in work.readers[topic].members:
                if taker in open_members and taker not in came and taker != first:
                    came[taker] = giver, topic
                    if work.sizes[taker] <= enough:
                        return came, taker
                    ahead.append(taker)
    return came, ABSENT


def _chosen(work: Work, topic: Uuid, some: set[int], taker: int) -> int:
    """Which partition goes: one that the taker had before, else the last."""
    before = work.before[topic]
    return max(some, key=lambda partition: (before[partition] == taker, partition))


def returns(work: Work) -> None:
    """Give back what need not have moved."""
    moved = [
        (topic, partition)
        for topic in work.changed
        if work.before[topic].count(ABSENT) < work.counts[topic]
        for partition, was in enumerate(work.before[topic])
        if was not in (ABSENT, work.owners[topic][partition])
    ]
    if not moved:
        return
    new_to = _new_to(work, {work.before[topic][partition] for topic, partition in moved})
    least = min(work.sizes)
    for topic, partition in moved:
        was, now = work.before[topic][partition], work.owners[topic][partition]
        if was == now:
            continue
        if work.sizes[was] >= work.sizes[now]:
            other = _in_exchange(work, new_to[was], now)
            if (
                other is None
                or _towers(work, was, 0, (topic,), least)
                or _towers(work, now, 0, other[:1], least)
            ):
                continue
            del new_to[was][other]
            work.move(*other, now)
            if now in new_to and work.before[other[0]][other[1]] != now:
                new_to[now][other] = None
        elif _towers(work, was, 1, (topic, *work.subscribed[was]), least):
            continue
        if now in new_to:
            del new_to[now][topic, partition]
        work.move(topic, partition, was)


def _towers(work: Work, member: int, more: int, topics: Iterable[Uuid], least: int) -> bool:
    """Whether with so many more it would have two more than another reader of these topics, of which it has
    something, or gets the first one. `least`: what nobody has less than."""
    size = work.sizes[member] + more
    if size - least < 2:
        return False
    has = (t for n, t in enumerate(topics) if t in work.readers and (not n or member in work.owners_of(t)))
    return any(min(work.sizes[r] for r in work.readers[topic].members) <= size - 2 for topic in has)


def _new_to(work: Work, members: set[int]) -> dict[int, dict[tuple[Uuid, int], None]]:
    """What these members have now and did not have before, in order."""
    new_to: dict[int, dict[tuple[Uuid, int], None]] = {member: {} for member in sorted(members)}
    for topic, changed in work.changed.items():
        if not changed.isdisjoint(members):
            before = work.before[topic]
            for partition, now in enumerate(work.owners[topic]):
                if now in members and before[partition] != now:
                    new_to[now][topic, partition] = None
    return new_to


def _in_exchange(work: Work, new: dict[tuple[Uuid, int], None], taker: int) -> tuple[Uuid, int] | None:
    """Something that is new to its owner and that the taker reads; what was the taker's if there is any."""
    found = None
    for topic, partition in new:
        if work.before[topic][partition] == taker:
            return topic, partition
        if found is None and topic in work.subscribed[taker]:
            found = topic, partition
    return found
