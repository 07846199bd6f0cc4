"""What an assignor is given, what it gives back, and what must be true of that.

An assignor is a function from a `GroupSpec` to a `GroupAssignment`; it is pure, and whoever calls it twice
with equal values gets equal answers, whatever the order of the maps. The nouns are KIP-848's.

Who has what is told as `{topic id: partitions}`, and partitions are a tuple in rising order: the smallest
thing that can be compared, hashed and shared. A slice of a larger tuple costs a tenth of a microsecond
whatever its numbers are, so that 100,000 partitions are given to 10,000 members in some milliseconds. A
member whose partitions stay gets the very mapping back that it came with, so that whoever stores answers can
ask `is` before `==`; nobody may therefore change a mapping that went in or came out. A topic of which a
member has nothing is left out.

Not checked, for it would cost as much as the answer: that no partition is held by two members before, and
that each is one that its topic has. It is so if an assignor gave them; else see `each_once`. `checked` looks
at an answer from a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.shard.errors import GroupError

__all__ = [
    "NOTHING",
    "Assignor",
    "GroupAssignment",
    "GroupSpec",
    "MemberAssignment",
    "MemberSpec",
    "PartitionAssignorError",
    "SubscriptionType",
    "TopicSpec",
    "checked",
    "each_once",
    "subscription_type",
]

Partitions = tuple[int, ...]
"""Numbers of partitions of one topic, rising."""
MemberAssignment = Mapping[Uuid, Partitions]
"""What one member has."""
GroupAssignment = Mapping[str, MemberAssignment]
"""What each member has, by member id. Every member is in it."""

NOTHING: MemberAssignment = MappingProxyType({})
"""What a member has that has nothing."""


class PartitionAssignorError(GroupError):
    """There is no assignment. Clients hear UNKNOWN_SERVER_ERROR, as from Kafka; the group stays as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(Errors.UNKNOWN_SERVER_ERROR, message)


class SubscriptionType(Enum):
    """Whether all members of the group subscribe to the same topics. Only for speed: it decides no rule."""

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: what it reads, and what it was given last."""

    subscribed: frozenset[Uuid]
    """Members with the same subscription had better share one set: sets are then compared at a glance."""
    assigned: MemberAssignment = field(default_factory=lambda: NOTHING)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that exists."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition the racks of its replicas; empty where nobody knows them."""
    assignable: Partitions | None = None
    """Those that may be given out, in a share group; None: all of them."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group that wants an assignment."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[Uuid, TopicSpec]
    """The topics that members subscribe to, at least."""
    subscription_type: SubscriptionType = SubscriptionType.HETEROGENEOUS

    @classmethod
    def of(cls, members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> GroupSpec:
        """With the subscription type that it has."""
        return cls(members, topics, subscription_type(members.values()))


class Assignor(NamedTuple):
    """A row of the table: the name that members and settings know, and the function."""

    name: str
    assign: Callable[[GroupSpec], GroupAssignment]
    """Raises `PartitionAssignorError`."""


def subscription_type(members: Iterable[MemberSpec]) -> SubscriptionType:
    """Whether these members all subscribe to the same. Nobody at all does."""
    one = None
    for member in members:
        if one is None:
            one = member.subscribed
        elif one is not member.subscribed and one != member.subscribed:
            return SubscriptionType.HETEROGENEOUS
    return SubscriptionType.HOMOGENEOUS


def partitions_of(spec: GroupSpec, topics: Iterable[Uuid]) -> dict[Uuid, int]:
    """How many partitions each of these topics has, in their order; a topic that is not there is an error."""
    counts = {}
    for topic in topics:
        found = spec.topics.get(topic)
        if found is None:
            raise PartitionAssignorError(
                f"Members are subscribed to topic {topic} which doesn't exist in the topic metadata."
            )
        counts[topic] = found.partitions
    return counts


def each_once(members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> dict[str, MemberSpec]:
    """The same members, none with what does not exist, nor with what another, before it by name, has as well.

    For what was not given by an assignor of ours: before a classic group became a consumer group, its clients
    may have agreed on anything, that all read everything for instance. Who has nothing such keeps its value.
    """
    taken: set[tuple[Uuid, int]] = set()
    found: dict[str, MemberSpec] = {}
    for name in sorted(members):
        mine: dict[Uuid, Partitions] = {}
        for topic, some in members[name].assigned.items():
            count = topics[topic].partitions if topic in topics else 0
            free = tuple(p for p in sorted(set(some)) if 0 <= p < count and (topic, p) not in taken)
            taken.update((topic, partition) for partition in free)
            if free:
                mine[topic] = free
        same = mine == members[name].assigned
        found[name] = members[name] if same else replace(members[name], assigned=mine or NOTHING)
    return {name: found[name] for name in members}


def checked(spec: GroupSpec, given: GroupAssignment) -> GroupAssignment:
    """The answer of an assignor that may be anybody's: the same, with partitions in rising tuples.

    Raises `PartitionAssignorError` where it gives something to nobody in the group, or to somebody who does
    not subscribe to it, or what does not exist, or one partition to two. Members and partitions may be left
    out.
    """
    strangers = sorted(map(str, given.keys() - spec.members.keys()))
    if strangers:
        raise PartitionAssignorError(f"An assignment for {strangers[0]}, which is not a member.")
    taken: set[tuple[Uuid, int]] = set()
    answer: dict[str, MemberAssignment] = {}
    for member, subscribed in ((name, of.subscribed) for name, of in spec.members.items()):
        mine = {
            Uuid(topic): tuple(sorted(some)) for topic, some in given.get(member, NOTHING).items() if some
        }
        for topic, some in mine.items():
            if topic not in subscribed:
                raise PartitionAssignorError(
                    f"{member} is given topic {topic}, to which it does not subscribe."
                )
            count = spec.topics[topic].partitions if topic in spec.topics else 0
            for partition in some:
                if not 0 <= partition < count:
                    raise PartitionAssignorError(
                        f"{member} is given partition {partition} of topic {topic}, which has {count}."
                    )
                if (topic, partition) in taken:
                    raise PartitionAssignorError(f"Partition {partition} of topic {topic} is given twice.")
                taken.add((topic, partition))
        answer[member] = mine or NOTHING
    return answer
