"""The uniform assignor, Kafka's default: balanced, and as sticky as the balance permits.

This module assigns groups whose members all subscribe to the same topics; for others see `heterogeneous`. The
algorithm is Kafka's (UniformHomogeneousAssignmentBuilder), but members and topics are taken in the order of
their ids, and not in that of Java's hash maps.

    min_quota    partitions // members; `larger_quotas` members get one more
    quota        min_quota + 1 for members that own more than min_quota, while larger quotas are left; else
                 min_quota
    retained     the first `quota` partitions of each member
    unassigned   partitions without an owner, then those that members had beyond their quota
    assigned     unassigned partitions, in this order, to members below their quota

Members above their quota lose only the excess, so no balanced assignment moves fewer partitions.

Cost: linear in members and topics, and in partitions only if some are unassigned. Unchanged members get the
mapping of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from konvene.codec.uuid import ZERO_UUID, Uuid
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
from konvene.groups.assignors.uniform import heterogeneous

__all__ = ["assign"]

Runs = list[tuple[Uuid, Partitions]]
"""Partitions to assign, in this order."""
Trim = Callable[[MemberSpec, MemberAssignment, int, Mapping[Uuid, int], Runs], MemberAssignment]
"""Trim a member's partitions to its quota, by the ranks of topics, and append the excess to the runs."""


def assign(spec: GroupSpec) -> GroupAssignment:
    """Return the most balanced assignment, with the fewest moves."""
    if not spec.members:
        return {}
    order = sorted(spec.members)
    if spec.subscription_type is SubscriptionType.HETEROGENEOUS:
        return heterogeneous.assign(spec, order)
    return assign_homogeneous(spec, order, sorted(spec.members[order[0]].subscribed))


def assign_homogeneous(spec: GroupSpec, order: Sequence[str], topics: Sequence[Uuid]) -> GroupAssignment:
    """Return the assignment of members that all subscribe to these topics, both taken in the given order."""
    retained = retain(spec, order, partitions_of(spec, topics))
    distribute(retained)
    return retained.assignments


class Retained(NamedTuple):
    """The partitions that members keep (`assignments`), the unassigned ones, and the members below quota.

    `retain` returns it and `distribute` completes it. `below_quota` has the members with the numbers of
    partitions that they lack.
    """

    assignments: dict[str, MemberAssignment]
    unassigned: Runs
    below_quota: list[tuple[str, int]]


def retain(
    spec: GroupSpec, order: Sequence[str], counts: Mapping[Uuid, int], trim: Trim | None = None
) -> Retained:
    """Determine the partitions that members keep, the unassigned ones, and the members below their quota.

    `counts`: the partition counts of the topics. `trim`: chooses the partitions that a member above its quota
    keeps; by default the first ones, with the topics in the order of `counts`."""
    trim = trim or _keep_first
    total = sum(counts.values())
    min_quota, larger_quotas = divmod(total, len(order))
    subscribed = counts.keys()
    rank = {topic: index for index, topic in enumerate(counts)}
    assignments: dict[str, MemberAssignment] = {}
    before: list[MemberAssignment] = []
    revoked: Runs = []
    below_quota: list[tuple[str, int]] = []
    assigned_count = 0
    members_left = len(order)
    for member in order:
        owned = spec.members[member].assigned
        size = 0
        if owned:
            if not owned.keys() <= subscribed:
                owned = {
                    topic: partitions for topic, partitions in owned.items() if topic in subscribed
                } or NOTHING
            size = sum(map(len, owned.values()))
            assigned_count += size
            before.append(owned)
        # Members that own enough get the larger quotas; what is left of these goes to the last members.
        has_larger_quota = larger_quotas > 0 and (size > min_quota or members_left <= larger_quotas)
        larger_quotas -= has_larger_quota
        members_left -= 1
        missing_count = min_quota + has_larger_quota - size
        if missing_count < 0:
            owned = trim(spec.members[member], owned, min_quota + has_larger_quota, rank, revoked)
        elif missing_count:
            below_quota.append((member, missing_count))
        assignments[member] = owned
    unassigned = _unassigned(before, counts) if assigned_count != total else []
    return Retained(assignments, unassigned + revoked, below_quota)


def _keep_first(
    member: MemberSpec, owned: MemberAssignment, quota: int, rank: Mapping[Uuid, int], revoked: Runs
) -> MemberAssignment:
    """Return the first `quota` partitions of a member, topic by topic; append the others to `revoked`."""
    kept: dict[Uuid, Partitions] = {}
    for topic in sorted(owned, key=rank.__getitem__):
        partitions = owned[topic]
        if quota:
            kept[topic] = partitions[:quota]
        if len(partitions) > quota:
            revoked.append((topic, partitions[quota:]))
        quota = max(quota - len(partitions), 0)
    return kept or NOTHING


def _unassigned(before: Sequence[MemberAssignment], counts: Mapping[Uuid, int]) -> Runs:
    """Return the partitions without an owner, by topic. `before`: assignments of all members."""
    unassigned_counts = dict(counts)
    for owned in before:
        for topic, partitions in owned.items():
            unassigned_counts[topic] -= len(partitions)
    taken: dict[Uuid, set[int]] = {topic: set() for topic, count in unassigned_counts.items() if count}
    for owned in before:
        for topic in owned.keys() & taken.keys():
            taken[topic].update(owned[topic])
    all_partitions = tuple(range(max(counts.values())))
    return [
        (
            topic,
            tuple(p for p in all_partitions[: counts[topic]] if p not in partitions)
            if partitions
            else all_partitions[: counts[topic]],
        )
        for topic, partitions in taken.items()
    ]


def distribute(retained: Retained) -> None:
    """Assign the unassigned partitions, in their order, to the members below their quota."""
    assignments = retained.assignments
    runs: Iterator[tuple[Uuid, Partitions]] = iter(retained.unassigned)
    topic = ZERO_UUID
    run: Partitions = ()
    start = 0
    for member, missing_count in retained.below_quota:
        owned = assignments[member]
        assigned: dict[Uuid, Partitions] = {**owned} if owned else {}
        while missing_count:
            if start >= len(run):
                topic, run = next(runs)
                start = 0
            partitions = run[start : start + missing_count]
            start += len(partitions)
            missing_count -= len(partitions)
            assigned[topic] = tuple(sorted(assigned[topic] + partitions)) if topic in assigned else partitions
        assignments[member] = assigned
