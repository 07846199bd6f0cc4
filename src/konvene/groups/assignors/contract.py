"""The input and output of an assignor, and what must hold for them.

An assignor is a function from a `GroupSpec` to a `GroupAssignment`. It is pure: equal inputs have equal
results, whatever the order of the mappings. The names are KIP-848's.

A member's assignment is `{topic id: partitions}`, with partitions as a tuple in ascending order: the smallest
value that can be compared, hashed and shared. Slicing a larger tuple takes a tenth of a microsecond, so that
100,000 partitions are assigned to 10,000 members in some milliseconds. A member whose partitions do not
change gets the mapping of the input, so that callers can compare by `is` before `==`; therefore no mapping of
an input or output may be modified. A topic of which a member has no partitions is left out.

In the input, no two members may own the same partition, and every owned partition has to exist. This is not
checked, as it would cost as much as the assignment: results of an assignor fulfil it; for others see
`each_once`.
`checked` validates the result of a third-party assignor."""

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
"""Partition indexes of one topic, ascending."""
MemberAssignment = Mapping[Uuid, Partitions]
"""The partitions of one member."""
GroupAssignment = Mapping[str, MemberAssignment]
"""The partitions of each member, by member id. It has all members."""

NOTHING: MemberAssignment = MappingProxyType({})
"""The assignment of a member without partitions."""


class PartitionAssignorError(GroupError):
    """Error: the assignor cannot compute an assignment.

    Clients get UNKNOWN_SERVER_ERROR, as from Kafka, and the group does not change.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Errors.UNKNOWN_SERVER_ERROR, message)


class SubscriptionType(Enum):
    """The kind of a group: HOMOGENEOUS if all members subscribe to the same topics.

    It only selects a faster algorithm; the result is the same.
    """

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as input of an assignor: its subscription, and its target assignment so far."""

    subscribed: frozenset[Uuid]
    """Members with the same subscription should share one set, which makes comparisons cheap."""
    assigned: MemberAssignment = field(default_factory=lambda: NOTHING)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """An existing topic as input of an assignor: its partitions, and the racks of their replicas."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """The racks of each partition's replicas; empty if they are unknown."""
    assignable: Partitions | None = None
    """The partitions that may be assigned, in a share group; None for all."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The input of an assignor: the members of a group and the topics to which they subscribe."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[Uuid, TopicSpec]
    """The topics that members subscribe to, at least."""
    subscription_type: SubscriptionType = SubscriptionType.HETEROGENEOUS

    @classmethod
    def of(cls, members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> GroupSpec:
        """Return the input for these members and topics, with the subscription type of the members."""
        return cls(members, topics, subscription_type(members.values()))


class Assignor(NamedTuple):
    """An assignor: its name in configs and requests, and its function."""

    name: str
    assign: Callable[[GroupSpec], GroupAssignment]
    """Raises `PartitionAssignorError`."""


def subscription_type(members: Iterable[MemberSpec]) -> SubscriptionType:
    """Return HOMOGENEOUS if all these members subscribe to the same topics, or there are none."""
    one = None
    for member in members:
        if one is None:
            one = member.subscribed
        elif one is not member.subscribed and one != member.subscribed:
            return SubscriptionType.HETEROGENEOUS
    return SubscriptionType.HOMOGENEOUS


def partitions_of(spec: GroupSpec, topics: Iterable[Uuid]) -> dict[Uuid, int]:
    """Return the partition counts of these topics, in their order.

    Raises `PartitionAssignorError` if a topic does not exist.
    """
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
    """Return the members with only valid owned partitions: existing ones, with one owner each.

    Of several owners the first one by name keeps a partition. This is for assignments that no server-side
    assignor made: in a converted classic group the clients' assignor may have given all members all
    partitions. A member that loses no partition is the same object as before.
    """
    seen: set[tuple[Uuid, int]] = set()
    found: dict[str, MemberSpec] = {}
    for name in sorted(members):
        assigned: dict[Uuid, Partitions] = {}
        for topic, partitions in members[name].assigned.items():
            count = topics[topic].partitions if topic in topics else 0
            valid = tuple(p for p in sorted(set(partitions)) if 0 <= p < count and (topic, p) not in seen)
            seen.update((topic, partition) for partition in valid)
            if valid:
                assigned[topic] = valid
        same = assigned == members[name].assigned
        found[name] = members[name] if same else replace(members[name], assigned=assigned or NOTHING)
    return {name: found[name] for name in members}


def checked(spec: GroupSpec, assignment: GroupAssignment) -> GroupAssignment:
    """Validate the result of a third-party assignor, and return it with partitions as ascending tuples.

    Raises `PartitionAssignorError` if it has an unknown member, a topic to which its member is not
    subscribed, a partition that does not exist, or one partition twice. Members and partitions may be left
    out."""
    unknown = sorted(map(str, assignment.keys() - spec.members.keys()))
    if unknown:
        raise PartitionAssignorError(f"An assignment for {unknown[0]}, which is not a member.")
    assigned_before: set[tuple[Uuid, int]] = set()
    result: dict[str, MemberAssignment] = {}
    for member, subscribed in ((name, of.subscribed) for name, of in spec.members.items()):
        assigned = {
            Uuid(topic): tuple(sorted(some))
            for topic, some in assignment.get(member, NOTHING).items()
            if some
        }
        for topic, some in assigned.items():
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
                if (topic, partition) in assigned_before:
                    raise PartitionAssignorError(f"Partition {partition} of topic {topic} is given twice.")
                assigned_before.add((topic, partition))
        result[member] = assigned or NOTHING
    return result
