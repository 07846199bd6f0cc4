"""Uniform: everybody gets as many partitions as everybody else, and keeps what it has. Kafka's default.

Balance comes first, then that as little as possible moves, then nothing. Where all members subscribe to the
same topics this file answers; `uniform_mixed` where they do not. It is Kafka's algorithm in our order: Kafka
takes members and topics as its hash maps have them, we take them by their names.

    total = each * members + longer                 `longer` members have one more than `each`
    quota = each + 1 for whoever has that many, while there are longer ones left; each for the others
    kept  = of what a member has, the first `quota`
    free  = what nobody has, then what members had too much of
    given = to each member with less than its quota what is missing, from `free` in its order

So every member that has too much loses only what is too much: no other balanced answer moves less.

Cost: one look at each member and each topic, and one at each partition only if some are free. A member that
neither gives nor gets comes back with the mapping that it came with.
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
"""Partitions that are to be given out, in this order."""
Cut = Callable[[MemberSpec, MemberAssignment, int, Mapping[Uuid, int], Runs], MemberAssignment]
"""What a member keeps of so much, and how many; topics have ranks. The rest goes to the runs."""


def assign(spec: GroupSpec) -> GroupAssignment:
    """As equal as can be, with as few moves as can be."""
    if not spec.members:
        return {}
    order = sorted(spec.members)
    if spec.subscription_type is SubscriptionType.HETEROGENEOUS:
        return heterogeneous.assign(spec, order)
    return assign_alike(spec, order, sorted(spec.members[order[0]].subscribed))


def assign_alike(spec: GroupSpec, order: Sequence[str], topics: Sequence[Uuid]) -> GroupAssignment:
    """All members subscribe to these topics; both are taken in this order."""
    settled = settle(spec, order, partitions_of(spec, topics))
    deal(settled)
    return settled.given


class Settled(NamedTuple):
    """An intermediate state: retained partitions, unassigned ones, and each member's remaining quota."""

    given: dict[str, MemberAssignment]
    free: Runs
    wanting: list[tuple[str, int]]


def settle(
    spec: GroupSpec, order: Sequence[str], counts: Mapping[Uuid, int], cut: Cut | None = None
) -> Settled:
    """What everybody keeps of what it has; `cut` says what somebody keeps who has too much."""
    cut = cut or _first
    total = sum(counts.values())
    each, longer = divmod(total, len(order))
    subscribed = counts.keys()
    rank = {topic: at for at, topic in enumerate(counts)}
    given: dict[str, MemberAssignment] = {}
    before: list[MemberAssignment] = []
    revoked: Runs = []
    wanting: list[tuple[str, int]] = []
    known = 0
    left = len(order)
    for member in order:
        held = spec.members[member].assigned
        size = 0
        if held:
            if not held.keys() <= subscribed:
                held = {topic: some for topic, some in held.items() if topic in subscribed} or NOTHING
            size = sum(map(len, held.values()))
            known += size
            before.append(held)
        # A quota of one more is for those who have it, and for the last ones if nobody has.
        one_more = longer > 0 and (size > each or left <= longer)
        longer -= one_more
        left -= 1
        wants = each + one_more - size
        if wants < 0:
            held = cut(spec.members[member], held, each + one_more, rank, revoked)
        elif wants:
            wanting.append((member, wants))
        given[member] = held
    missing = _missing(before, counts) if known != total else []
    return Settled(given, missing + revoked, wanting)


def _first(
    member: MemberSpec, held: MemberAssignment, quota: int, rank: Mapping[Uuid, int], revoked: Runs
) -> MemberAssignment:
    """The first so many, topic by topic; what is beyond goes to `revoked`."""
    kept: dict[Uuid, Partitions] = {}
    for topic in sorted(held, key=rank.__getitem__):
        some = held[topic]
        if quota:
            kept[topic] = some[:quota]
        if len(some) > quota:
            revoked.append((topic, some[quota:]))
        quota = max(quota - len(some), 0)
    return kept or NOTHING


def _missing(before: Sequence[MemberAssignment], counts: Mapping[Uuid, int]) -> Runs:
    """What nobody has, topic by topic. Counting tells of which topics something is missing."""
    lacking = dict(counts)
    for held in before:
        for topic, some in held.items():
            lacking[topic] -= len(some)
    taken: dict[Uuid, set[int]] = {topic: set() for topic, lacks in lacking.items() if lacks}
    for held in before:
        for topic in held.keys() & taken.keys():
            taken[topic].update(held[topic])
    row = tuple(range(max(counts.values())))
    return [
        (topic, tuple(p for p in row[: counts[topic]] if p not in some) if some else row[: counts[topic]])
        for topic, some in taken.items()
    ]


def deal(settled: Settled) -> None:
    """Give out what is free, run after run, to those who want something."""
    given = settled.given
    runs: Iterator[tuple[Uuid, Partitions]] = iter(settled.free)
    topic = ZERO_UUID
    run: Partitions = ()
    at = 0
    for member, wants in settled.wanting:
        had = given[member]
        mine: dict[Uuid, Partitions] = {**had} if had else {}
        while wants:
            if at >= len(run):
                topic, run = next(runs)
                at = 0
            some = run[at : at + wants]
            at += len(some)
            wants -= len(some)
            mine[topic] = tuple(sorted(mine[topic] + some)) if topic in mine else some
        given[member] = mine
