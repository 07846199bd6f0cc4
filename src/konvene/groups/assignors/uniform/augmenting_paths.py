"""Improve the result of Kafka's uniform algorithm for overlapping subscriptions, without more moves.

Kafka balances one topic at a time. Members subscribed to {a}, {a, b} and {b} with 9, 10 and 11 partitions
stay unbalanced, although a partition of b could go from the third to the second, and one of a from the second
to the first. Such a sequence is an augmenting path: each member on it gives a partition to a subscriber of
the same topic, and the last member has at least two partitions less than the first. An assignment has the
best balance if and only if there is no augmenting path (Harvey et al., semi-matchings, 2006).

    paths     from a member with n partitions to one with at most n - 2. Only partitions that are new to their
              owners move along them, so no partition moves that could have stayed
    returns   a moved partition goes back to its previous owner if that member has fewer partitions, or can
              exchange it for a new partition of its own; but not if a subscriber of the same topic would then
              have two partitions less

The result is never less balanced than Kafka's, and never moves more partitions. An unchanged assignment is
left alone, even if a path of old partitions would improve it.

Cost: none if connected members differ by at most one, as after Kafka's algorithm without overlaps. A search
without a result excludes all members that it reached, since no path ends at them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.uniform.builder import ABSENT, AssignmentBuilder

__all__ = ["follow_augmenting_paths", "undo_needless_moves"]

Holdings = list[dict[Uuid, set[int]]]
"""Partitions by member and topic."""
Step = tuple[int, Uuid]
"""Member that gives, and topic of the partition."""


def follow_augmenting_paths(builder: AssignmentBuilder) -> None:
    """Move partitions along augmenting paths until there are none."""
    unbalanced = [
        member
        for component in _connected_members(builder)
        if _imbalance(builder, component) > 1
        for member in component
    ]
    if not unbalanced:
        return
    moved = _moved_partitions(builder)
    open_members = set(unbalanced)
    while open_members:
        first = max(sorted(open_members), key=builder.sizes.__getitem__)
        predecessors, last = _search_path(builder, moved, first, open_members)
        if last == ABSENT:
            open_members -= predecessors.keys() | {first}
            continue
        while last != first:
            source, topic = predecessors[last]
            partition = _choose_partition(builder, topic, moved[source][topic], last)
            moved[source][topic].remove(partition)
            if builder.before[topic][partition] != last:
                moved[last].setdefault(topic, set()).add(partition)
            builder.move(topic, partition, last)
            last = source


def _connected_members(builder: AssignmentBuilder) -> Iterator[list[int]]:
    """Yield the connected components of members, where members are connected by a common topic."""
    root = list(range(len(builder.order)))

    def root_of(member: int) -> int:
        while root[member] != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    seen = set()
    for topic in builder.counts:
        readers = builder.subscribers[topic]
        if readers in seen:
            continue
        seen.add(readers)
        first_root = root_of(readers.members[0])
        for member in readers.members:
            root[root_of(member)] = first_root
    components: dict[int, list[int]] = {}
    for member in range(len(root)):
        components.setdefault(root_of(member), []).append(member)
    return iter(components.values())


def _imbalance(builder: AssignmentBuilder, members: list[int]) -> int:
    sizes = [builder.sizes[member] for member in members]
    return max(sizes) - min(sizes)


def _moved_partitions(builder: AssignmentBuilder) -> Holdings:
    moved: Holdings = [{} for _ in builder.order]
    for topic in builder.changed:
        for partition, (previous, owner) in enumerate(
            zip(builder.before[topic], builder.owners[topic], strict=True)
        ):
            if previous != owner:
                moved[owner].setdefault(topic, set()).add(partition)
    return moved


def _search_path(
    builder: AssignmentBuilder, moved: Holdings, first: int, open_members: set[int]
) -> tuple[dict[int, Step], int]:
    """Search breadth-first for a path from `first` to a member with at least two partitions fewer.

    Return, for each member reached, the member and topic before it on the path; and the member that was
    found, or `ABSENT`. `moved`: by member, the partitions that may move. `open_members`: those to search.
    """
    max_size = builder.sizes[first] - 2
    predecessors: dict[int, Step] = {}
    seen: set[Uuid] = set()
    queue = deque([first])
    while queue:
        source = queue.popleft()
        for topic, partitions in moved[source].items():
            if not partitions or topic in seen:
                continue
            seen.add(topic)
            for target in builder.subscribers[topic].members:
                if target in open_members and target not in predecessors and target != first:
                    predecessors[target] = source, topic
                    if builder.sizes[target] <= max_size:
                        return predecessors, target
                    queue.append(target)
    return predecessors, ABSENT


def _choose_partition(builder: AssignmentBuilder, topic: Uuid, partitions: set[int], target: int) -> int:
    """Return which of the partitions to give to the target: one that it owned before, else the last."""
    before = builder.before[topic]
    return max(partitions, key=lambda partition: (before[partition] == target, partition))


def undo_needless_moves(builder: AssignmentBuilder) -> None:
    """Give moved partitions back to their previous owners if the balance permits it."""
    moved = [
        (topic, partition)
        for topic in builder.changed
        if builder.before[topic].count(ABSENT) < builder.counts[topic]
        for partition, previous in enumerate(builder.before[topic])
        if previous not in (ABSENT, builder.owners[topic][partition])
    ]
    if not moved:
        return
    new_partitions = _new_partitions(
        builder, {builder.before[topic][partition] for topic, partition in moved}
    )
    min_size = min(builder.sizes)
    for topic, partition in moved:
        previous, owner = builder.before[topic][partition], builder.owners[topic][partition]
        if previous == owner:
            continue
        if builder.sizes[previous] >= builder.sizes[owner]:
            other = _partition_in_exchange(builder, new_partitions[previous], owner)
            if (
                other is None
                or _exceeds_neighbours(builder, previous, 0, (topic,), min_size)
                or _exceeds_neighbours(builder, owner, 0, other[:1], min_size)
            ):
                continue
            del new_partitions[previous][other]
            builder.move(*other, owner)
            if owner in new_partitions and builder.before[other[0]][other[1]] != owner:
                new_partitions[owner][other] = None
        elif _exceeds_neighbours(builder, previous, 1, (topic, *builder.subscribed[previous]), min_size):
            continue
        if owner in new_partitions:
            del new_partitions[owner][topic, partition]
        builder.move(topic, partition, previous)


def _exceeds_neighbours(
    builder: AssignmentBuilder, member: int, additional: int, topics: Iterable[Uuid], min_size: int
) -> bool:
    """Return whether a member with `additional` partitions would have at least two more than a neighbour.

    Neighbours are the subscribers of the topics whose partitions the member could give: the first of
    `topics`, since it is about to receive a partition of it, and the others of which it owns partitions.
    `min_size`: smallest number of partitions of any member.
    """
    size = builder.sizes[member] + additional
    if size - min_size < 2:
        return False
    owned = (
        topic
        for index, topic in enumerate(topics)
        if topic in builder.subscribers and (not index or member in builder.owners_of(topic))
    )
    return any(
        min(builder.sizes[subscriber] for subscriber in builder.subscribers[topic].members) <= size - 2
        for topic in owned
    )


def _new_partitions(builder: AssignmentBuilder, members: set[int]) -> dict[int, dict[tuple[Uuid, int], None]]:
    """Return, by member, the partitions that these members own now and did not own before."""
    new_partitions: dict[int, dict[tuple[Uuid, int], None]] = {member: {} for member in sorted(members)}
    for topic, changed in builder.changed.items():
        if not changed.isdisjoint(members):
            before = builder.before[topic]
            for partition, owner in enumerate(builder.owners[topic]):
                if owner in members and before[partition] != owner:
                    new_partitions[owner][topic, partition] = None
    return new_partitions


def _partition_in_exchange(
    builder: AssignmentBuilder, candidates: dict[tuple[Uuid, int], None], target: int
) -> tuple[Uuid, int] | None:
    """Return a candidate of a topic to which the target subscribes, preferably one that it owned before."""
    found = None
    for topic, partition in candidates:
        if builder.before[topic][partition] == target:
            return topic, partition
        if found is None and topic in builder.subscribed[target]:
            found = topic, partition
    return found
