"""What each kind of group has to tell: its states, its epoch, who waits in it, and what its records move.

A new kind is a row of `KINDS`, and a row of `MOVES` for the record in which it keeps what members are meant
to have. Names and states are Kafka's, as ListGroups gives them.

A rebalance is told by rows of the audit (`records.audit`). Of a classic group one row is one generation. Of
the others one row says that the epoch was raised, and a later one that all members have what was made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.classic.subscriptions import CONSUMER, read_assignment
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import State as ConsumerState
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


class Kind(NamedTuple):
    """What is asked of every group of a kind."""

    states: tuple[str, ...]
    """Each has a line, also where no group is in it."""
    epoch: Callable[[Any], int]
    waiting: Callable[[Any], int]
    """How many members do not have what they are meant to have."""


def _waiting_in_classic(group: ClassicGroup) -> int:
    """In a generation that is not stable yet, all; those that are waited for as well."""
    return 0 if group.state is ClassicState.STABLE else len(group.members)


def _behind(group: Any) -> int:
    return len(group.behind)


KINDS: Final[Mapping[str, Kind]] = {
    "classic": Kind(tuple(ClassicState), lambda group: group.generation, _waiting_in_classic),
    "consumer": Kind(tuple(ConsumerState), lambda group: group.epoch, _behind),
    "share": Kind(tuple(ShareState), lambda group: group.epoch, _behind),
    "streams": Kind(tuple(StreamsState), lambda group: group.epoch, _behind),
}


# --- rebalances, as the audit tells of them --------------------------------------------------------


def ends(story: RebalanceValue) -> bool:
    """Whether a rebalance is over with this: all members have what they are meant to have."""
    done = story.state in (STABLE, StreamsState.NOT_READY) and story.started_ms >= 0
    return done and (story.group_type == CLASSIC or story.joined_ms >= 0)


def begins(story: RebalanceValue) -> bool:
    """Whether this tells of a new generation or epoch, and not of the end of one told before."""
    return story.group_type == CLASSIC or not ends(story)


def counts_in_kafka(story: RebalanceValue) -> bool:
    """Whether Kafka's meter counts it: of classic groups when it is over, of the others when it begins."""
    return (story.state == STABLE) is (story.group_type == CLASSIC)


# --- what is moved ---------------------------------------------------------------------------------


class Moved(NamedTuple):
    """Partitions or tasks that members are meant to have from now on and were not before."""

    group_id: str
    protocol: str
    units: int
    warmed_up: int = 0
    """Of these, tasks that their member was to warm up before and is to be active in now."""


def moved(groups: Mapping[str, Any], record: Any) -> Moved | None:
    """What a record moves, looked at before it is replayed; None: nothing."""
    if type(record) is not Record or record.value is None:
        return None
    row = MOVES.get(type(record.key))
    return row(groups, record.key, record.value) if row is not None else None


def _by_leader(groups: Mapping[str, Any], key: GroupMetadataKey, value: GroupMetadataValue) -> Moved | None:
    """A classic group's leader said who has what. Only a consumer's words can be read."""
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
    told = read_assignment(bytes(assignment))
    return dict(told.partitions) if told is not None else {}


def _by_target(
    groups: Mapping[str, Any],
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue,
) -> Moved:
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id, {}) if isinstance(group, ConsumerGroup) else {}
    new = {told.topic_id: told.partitions for told in value.topic_partitions}
    return Moved(key.group_id, CONSUMER, sum(map(len, _gained(old, new).values())))


def _by_roles(
    groups: Mapping[str, Any],
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue,
) -> Moved:
    """A task in each of its roles: one that is to be active where it was a standby has moved as well."""
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id) if isinstance(group, StreamsGroup) else None
    before = (old.active, old.standby, old.warmup) if old is not None else ({}, {}, {})
    units = 0
    for role, tasks in zip(
        before, (value.active_tasks, value.standby_tasks, value.warmup_tasks), strict=True
    ):
        new = {told.subtopology_id: told.partitions for told in tasks}
        units += sum(map(len, _gained(role, new).values()))
    warmed_up = sum(
        partition in before[2].get(told.subtopology_id, ())
        for told in value.active_tasks
        for partition in told.partitions
    )
    return Moved(key.group_id, "streams", units, warmed_up)


def _gained(old: Mapping[Any, Collection[int]], new: Mapping[Any, Collection[int]]) -> dict[Any, set[int]]:
    return {topic: set(partitions).difference(old.get(topic, ())) for topic, partitions in new.items()}


def _by_share(
    groups: Mapping[str, Any],
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue,
) -> Moved:
    """A partition moves to each member that is given it."""
    group = groups.get(key.group_id)
    old = group.targets.get(key.member_id, {}) if isinstance(group, ShareGroup) else {}
    new = {told.topic_id: told.partitions for told in value.topic_partitions}
    return Moved(key.group_id, "share", sum(map(len, _gained(old, new).values())))


MOVES: Final[Mapping[type, Callable[[Mapping[str, Any], Any, Any], Moved | None]]] = {
    GroupMetadataKey: _by_leader,
    ConsumerGroupTargetAssignmentMemberKey: _by_target,
    StreamsGroupTargetAssignmentMemberKey: _by_roles,
    ShareGroupTargetAssignmentMemberKey: _by_share,
}
