"""The range assignor: each topic is divided into contiguous ranges for its subscribers in a fixed order.

Topics with the same number of partitions and the same subscribers are divided alike: the owner of partition 3
of one also owns partition 3 of the other (co-partitioning, as joins need it). The result depends only on
names, not on previous assignments. Static members come first, in the order of their instance ids, so they get
the same range after a restart.

Names are ordered as in Java, which compares UTF-16 code units: characters beyond the basic multilingual plane
are ordered differently in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    Partitions,
    SubscriptionType,
    partitions_of,
)

__all__ = ["assign"]


def assign(spec: GroupSpec) -> GroupAssignment:
    """Return the assignment by contiguous ranges; it is identical to Kafka's."""
    if not spec.members:
        return {}
    order = assignment_order(spec.members)
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        return _assign_homogeneous(order, partitions_of(spec, sorted(spec.members[order[0]].subscribed)))
    return _assign_heterogeneous(spec, order)


def assignment_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """Return the member ids in order: static members by instance id, then the others by member id."""
    instances = {
        name: member.instance_id for name, member in members.items() if member.instance_id is not None
    }
    others = (name for name in members if name not in instances) if instances else members
    by_name = _java_sort_key(instances.values())
    static = sorted(instances, key=lambda name: (by_name(instances[name]), name))
    return static + sorted(others, key=None if _is_ascii(members) else _java_sort_key(members))


def _is_ascii(names: Iterable[str]) -> bool:
    return all(map(str.isascii, names))


def _java_sort_key(names: Iterable[str]) -> Callable[[str], str | bytes]:
    """Return the sort key that orders these names as Java does."""
    return str if _is_ascii(names) else lambda name: name.encode("utf-16-be", "surrogatepass")


def _assign_homogeneous(order: list[str], counts: Mapping[Uuid, int]) -> GroupAssignment:
    """Assign topics to which all members subscribe; those with equal partition counts are divided once."""
    topics_by_count: dict[int, list[Uuid]] = {}
    for topic, count in counts.items():
        topics_by_count.setdefault(count, []).append(topic)
    assignment: dict[str, MemberAssignment] = dict.fromkeys(order, NOTHING)
    ranges = {count: _ranges(count, len(order)) for count in sorted(topics_by_count)}
    for index, member in enumerate(order[: max(topics_by_count, default=0)]):
        assigned: dict[Uuid, Partitions] = {}
        for count, of_count in ranges.items():
            if index < len(of_count):
                assigned.update(dict.fromkeys(topics_by_count[count], of_count[index]))
        assignment[member] = assigned
    return assignment


def _assign_heterogeneous(spec: GroupSpec, order: list[str]) -> GroupAssignment:
    """Assign topics with different subscribers; members with the same subscription are grouped."""
    groups: dict[frozenset[Uuid], list[int]] = {}
    for index, member in enumerate(order):
        groups.setdefault(spec.members[member].subscribed, []).append(index)
    groups_of_topic: dict[Uuid, list[list[int]]] = {}
    for subscribed, group in groups.items():
        for topic in subscribed:
            groups_of_topic.setdefault(topic, []).append(group)
    order_of_group: dict[tuple[int, ...], list[int]] = {}
    assignments: list[dict[Uuid, Partitions]] = [{} for _ in order]
    for topic, count in partitions_of(spec, sorted(groups_of_topic)).items():
        # The first reader of each kind identifies it.
        key = tuple(group[0] for group in groups_of_topic[topic])
        subscribers = order_of_group.get(key)
        if subscribers is None:
            subscribers = order_of_group[key] = sorted(
                index for group in groups_of_topic[topic] for index in group
            )
        for index, partitions in zip(subscribers, _ranges(count, len(subscribers)), strict=False):
            assignments[index][topic] = partitions
    return {member: assigned or NOTHING for member, assigned in zip(order, assignments, strict=True)}


def _ranges(partitions: int, members: int) -> list[Partitions]:
    """Return the partitions of a topic divided into ranges for its members, larger ranges first.

    There are no empty ranges, so there may be fewer than `members`.
    """
    all_partitions = tuple(range(partitions))
    size, larger = divmod(partitions, members)
    starts = [(size + 1) * index for index in range(larger)]
    first = (size + 1) * larger
    ranges = [all_partitions[start : start + size + 1] for start in starts]
    if size:
        ranges += [all_partitions[start : start + size] for start in range(first, partitions, size)]
    return ranges
