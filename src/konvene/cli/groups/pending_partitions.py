"""Who waits for whom in a consumer group, from what ConsumerGroupDescribe tells of its members alone.

A member has a target and what it holds. What it holds beyond its target it has still to release; what its
target has beyond what it holds it waits for, until whoever holds it has released it. A member that others
wait for is what a rebalance is stuck on, if it is stuck: it is told first. So this works with any broker;
which of what it should release a member has been told of already, no broker says.

Members' states are not told either, and follow from the same: Kafka's names are used for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.cli.output import MISSING

if TYPE_CHECKING:
    from konvene.client.admin.groups import GroupDescription, MemberDescription
    from konvene.client.net.cluster import TopicPartition

__all__ = ["Standing", "sentences", "spelled", "standings", "stuck", "who"]

AWAY = -2
"""The epoch of a static member that has left and said that it will be back."""


class Standing(NamedTuple):
    """How far a member has come; each partition with whom it concerns, if anybody."""

    member: MemberDescription
    releases: Mapping[TopicPartition, MemberDescription | None]
    """What it has still to release, and who waits for it."""
    waits: Mapping[TopicPartition, MemberDescription | None]
    """What it waits for, and who holds it."""
    behind: bool
    """Whether it has not come to the epoch of the assignment yet."""

    @property
    def is_awaited(self) -> bool:
        return any(each is not None for each in self.releases.values())

    @property
    def is_away(self) -> bool:
        return self.member.epoch == AWAY

    @property
    def state(self) -> str:
        if self.is_away:
            return "AWAY"
        if self.releases:
            return "UNREVOKED_PARTITIONS"
        return "UNRELEASED_PARTITIONS" if self.waits and not self.behind else "STABLE"


def standings(group: GroupDescription) -> list[Standing]:
    """All members: first those that others wait for, then those that have something to release."""
    holders = {tp: m for m in group.members for tp in m.assignment}
    wanted = {tp: m for m in group.members for tp in m.target or () if tp not in m.assignment}
    found = []
    for m in group.members:
        target = m.assignment if m.target is None else m.target
        found.append(
            Standing(
                m,
                {tp: wanted.get(tp) for tp in m.assignment if tp not in target},
                {tp: holders.get(tp) for tp in target if tp not in m.assignment},
                m.epoch is not None and m.epoch < (group.assignment_epoch or 0),
            )
        )
    return sorted(found, key=_rank)


def _rank(standing: Standing) -> tuple[bool, bool, bool]:
    """Sorts: what a person should look at first. Members alike stay in the coordinator's order."""
    return not standing.is_awaited, not standing.releases, not standing.waits


def stuck(group: GroupDescription) -> list[str]:
    """A sentence for each member that others wait for: what it has not released, and for whom."""
    return [
        f"{who(s.member)} has not released {_with_whom(s.releases, 'for which', 'waits')}"
        for s in standings(group)
        if s.is_awaited
    ]


def sentences(standing: Standing, group: GroupDescription) -> list[str]:
    """What there is to say of one member that is not where it should be."""
    told = []
    if standing.is_away:
        told.append("has left for a while; what it holds is kept for it until its session is over")
    if standing.releases:
        told.append(f"has not released {_with_whom(standing.releases, 'for which', 'waits')}")
    if standing.waits:
        held = {tp: each for tp, each in standing.waits.items() if each is not None}
        free = [tp for tp in standing.waits if tp not in held]
        if held:
            told.append(f"waits for {_with_whom(held, 'which', 'holds')}")
        if free and not standing.is_away:
            told.append(f"is given {spelled(free)} with its next heartbeat: nobody else holds that")
    if standing.behind and not standing.is_away and not standing.releases:
        told.append(f"has not come to epoch {group.assignment_epoch} yet: it is at {standing.member.epoch}")
    return told


def who(member: MemberDescription) -> str:
    """A member as it is named in a sentence."""
    return f"{member.instance_id or member.member_id} (client {member.client_id} at {member.client_host})"


def _name(member: MemberDescription) -> str:
    """Ids that clients make up themselves say nothing to people; what the client calls itself may."""
    return member.instance_id or f"{member.member_id} ({member.client_id})"


def _with_whom(partitions: Mapping[TopicPartition, MemberDescription | None], link: str, verb: str) -> str:
    """`orders:0,1, for which bob waits; orders:2`: partitions, grouped by whom they concern."""
    grouped: dict[str | None, list[TopicPartition]] = {}
    for tp, each in partitions.items():
        grouped.setdefault(None if each is None else _name(each), []).append(tp)
    names = sorted(grouped, key=lambda name: (name is None, name or ""))
    return "; ".join(
        spelled(grouped[name]) + (f", {link} {name} {verb}" if name is not None else "") for name in names
    )


def spelled(partitions: Iterable[TopicPartition]) -> str:
    """As Kafka's tool spells an assignment: `orders:0,1;payments:2`."""
    grouped: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(str(tp.partition))
    return ";".join(f"{topic}:{','.join(each)}" for topic, each in grouped.items()) or MISSING
