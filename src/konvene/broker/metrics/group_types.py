"""Metrics of each type of group: states, epoch, waiting members, and partitions that its records move.

To add a type, add a row to `KINDS`, and one to `MOVES` for the record that holds its target assignment. Names
and states are Kafka's, as ListGroups returns them.

Rebalances are counted from audit rows (`records.audit`). A classic group has one row for each generation. The
other types have one row when the epoch is raised and another when all members have reached their target
assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.classic.subscriptions import CONSUMER, read_assignment
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import State as ConsumerState
from konvene.groups.group_type import Group
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.group import State as ShareState
from konvene.groups.streams.group import State as StreamsState
from konvene.groups.streams.group import StreamsGroup
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.consumer import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from konvene.records.coordinator import Record
from konvene.records.share import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from konvene.records.streams import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
)

CLASSIC: Final = "classic"
STABLE: Final = "Stable"

K = TypeVar("K")

Groups = Mapping[str, Group]
"""Groups by id."""


class GroupTypeMetrics(NamedTuple):
    """The states of one type of group, and functions that read the metrics' values from such a group."""

    states: tuple[str, ...]
    """Possible states; each has a line even if no group is in it."""
    epoch: Callable[[Any], int]
    waiting: Callable[[Any], int]
    """Number of members that have not reached their target."""
    classic_members: Callable[[Any], int] | None = None
    """Number of members of the classic protocol, for types whose groups may mix protocols."""


def _waiting_in_classic(group: ClassicGroup) -> int:
    """Return 0 if the generation is stable, else the number of members, all of which wait for that."""
    return 0 if group.state is ClassicState.STABLE else len(group.members)


def _behind(group: ConsumerGroup | ShareGroup | StreamsGroup) -> int:
    return len(group.behind)


def _classic_members(group: ConsumerGroup | StreamsGroup) -> int:
    return group.classic_members


KINDS: Final[Mapping[str, GroupTypeMetrics]] = {
    "classic": GroupTypeMetrics(tuple(ClassicState), lambda group: group.generation, _waiting_in_classic),
    "consumer": GroupTypeMetrics(tuple(ConsumerState), lambda group: group.epoch, _behind, _classic_members),
    "share": GroupTypeMetrics(tuple(ShareState), lambda group: group.epoch, _behind),
    "streams": GroupTypeMetrics(tuple(StreamsState), lambda group: group.epoch, _behind, _classic_members),
}


# --- rebalances, from audit rows ---------------------------------------------------------------------


def ends(row: RebalanceValue) -> bool:
    """Return True if the row ends a rebalance: all members have reached their target assignment."""
    done = row.state in (STABLE, StreamsState.NOT_READY) and row.started_ms >= 0
    return done and (row.group_type == CLASSIC or row.joined_ms >= 0)


def begins(row: RebalanceValue) -> bool:
    """Return True if the row begins a generation or epoch."""
    return row.group_type == CLASSIC or not ends(row)


def counts_in_kafka(row: RebalanceValue) -> bool:
    """Return True if Kafka's metrics count the row.

    Kafka counts the end of a rebalance of a classic group, and its beginning for other types of groups."""
    return (row.state == STABLE) is (row.group_type == CLASSIC)


# --- moved partitions ------------------------------------------------------------------------------


class Moved(NamedTuple):
    """The number of partitions or tasks that a record of a target assignment newly gives to members."""

    group_id: str
    protocol: str
    units: int
    warmed_up: int = 0
    """Tasks among them that the member was warming up and that are now active on it."""


def moved(groups: Groups, record: object) -> Moved | None:
    """Return how many partitions or tasks a record of a target assignment newly gives to members.

    `groups` are the groups before the record is replayed. Return None for other records."""
    if type(record) is not Record or record.value is None:
        return None
    compare = MOVES.get(type(record.key))
    return compare(groups, record.key, record.value) if compare is not None else None


def _by_leader(groups: Groups, key: GroupMetadataKey, value: GroupMetadataValue) -> Moved | None:
    """Count the partitions that members of a classic group gain in a new generation.

    Return None if the group's protocol type is not "consumer", as the assignments cannot be decoded."""
    if value.protocol_type != CONSUMER:
        return None
    group = groups.get(key.group)
    before = group.members if isinstance(group, ClassicGroup) else {}
    units = 0
    for member in value.members:
        old = before[member.member_id].assignment if member.member_id in before else b""
        if member.assignment != old:
            units += sum(map(len, _gained(_read(old), _read(member.assignment)).values()))
    return Moved(key.group, CLASSIC, units)


def _read(assignment: bytes) -> Mapping[str, Collection[int]]:
    decoded = read_assignment(bytes(assignment))
    return dict(decoded.partitions) if decoded is not None else {}


def _by_target(
    groups: Groups,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue,
) -> Moved:
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id, {}) if isinstance(group, ConsumerGroup) else {}
    new = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
    return Moved(key.group_id, CONSUMER, sum(map(len, _gained(old, new).values())))


def _by_roles(
    groups: Groups,
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue,
) -> Moved:
    """Count the tasks that a streams member gains in each role: a standby task that becomes active counts."""
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id) if isinstance(group, StreamsGroup) else None
    before = (old.active, old.standby, old.warmup) if old is not None else ({}, {}, {})
    units = 0
    for role, tasks in zip(
        before, (value.active_tasks, value.standby_tasks, value.warmup_tasks), strict=True
    ):
        new = {ids.subtopology_id: ids.partitions for ids in tasks}
        units += sum(map(len, _gained(role, new).values()))
    warmed_up = sum(
        partition in before[2].get(ids.subtopology_id, ())
        for ids in value.active_tasks
        for partition in ids.partitions
    )
    return Moved(key.group_id, "streams", units, warmed_up)


def _gained(old: Mapping[K, Collection[int]], new: Mapping[K, Collection[int]]) -> dict[K, set[int]]:
    return {topic: set(partitions).difference(old.get(topic, ())) for topic, partitions in new.items()}


def _by_share(
    groups: Groups,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue,
) -> Moved:
    """Count the partitions that a share group member gains, even if other members have them too."""
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id, {}) if isinstance(group, ShareGroup) else {}
    new = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
    return Moved(key.group_id, "share", sum(map(len, _gained(old, new).values())))


MOVES: Final[Mapping[type, Callable[[Groups, Any, Any], Moved | None]]] = {
    GroupMetadataKey: _by_leader,
    ConsumerGroupTargetAssignmentMemberKey: _by_target,
    StreamsGroupTargetAssignmentMemberKey: _by_roles,
    ShareGroupTargetAssignmentMemberKey: _by_share,
}
