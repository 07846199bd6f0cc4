"""Assignments in member records, as units with names.

A unit is, for a consumer group, a partition by topic id, with the topic's name if that is known; for a
streams group, a task by subtopology, in one of three roles; for a classic group, a partition that the leader
assigned, or a connector or task of Kafka Connect, depending on the group's protocol type (assignments of
other types have no units); for a share group, a partition, which several members may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from konvene.codec.uuid import Uuid
from konvene.groups.classic.subscriptions import CONSUMER, read_assignment
from konvene.groups.consumer.current_assignment import CurrentAssignment as ConsumerCurrent
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.share.current_assignment import CurrentAssignment as ShareCurrent
from konvene.groups.streams.current_assignment import CurrentAssignment as StreamsCurrent
from konvene.groups.streams.group import StreamsGroup
from konvene.pipeline.reduce.connect import CONNECT, worker_units
from konvene.pipeline.reduce.ownership import ACTIVE, SHARED, Unit, marked_topic, topic_name
from konvene.records.classic import GroupMetadataValue, MemberMetadata

__all__ = ["CurrentAssignment", "Names", "changes", "classic_units", "owners_of_missing"]

CurrentAssignment = ConsumerCurrent | ShareCurrent | StreamsCurrent

_ROLES = (ACTIVE, "standby", "warmup")


class Names:
    """Topic names by id. A topic whose name is unknown is named by its id.

    A topic that was deleted and created again is another topic: the name of the later one is marked
    (`ownership.topic_name` removes the mark)."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._seen: dict[Uuid, str] = {}
        self._first: dict[str, Uuid] = {}
        """The first topic with each name."""

    def __repr__(self) -> str:
        return f"<names of {len(self._names)} topics>"

    def learn(self, names: Mapping[str, str]) -> bool:
        """Replace the names; return True if all topics named so far keep their names."""
        self._names = dict(names)
        return all(
            names.get(text := str(Uuid(topic_id)), text) == topic_name(name)
            for topic_id, name in self._seen.items()
        )

    def __getitem__(self, topic_id: Uuid) -> str:
        name = self._seen.get(topic_id)
        if name is None:
            text = str(Uuid(topic_id))
            name = self._names.get(text, text)
            if self._first.setdefault(name, topic_id) != topic_id:
                name = marked_topic(name, text)
            self._seen[topic_id] = name
        return name


def changes(
    before: CurrentAssignment | None, after: CurrentAssignment | None, names: Names
) -> tuple[list[Unit], list[Unit]]:
    """Return the units that a member lost and gained, sorted.

    `before` and `after` are its current assignments; None if it was, or is, no member."""
    if (
        before is not None
        and after is not None
        and before.assigned == after.assigned
        and _pending(before) == _pending(after)
    ):
        return [], []
    current = before if after is None else after
    if isinstance(current, StreamsCurrent):
        had, has = _tasks(before), _tasks(after)
        return sorted(had - has), sorted(has - had)
    role = SHARED if isinstance(current, ShareCurrent) else ACTIVE
    had_partitions, has_partitions = _partitions(before), _partitions(after)
    lost = _without(had_partitions, has_partitions, role, names)
    return lost, _without(has_partitions, had_partitions, role, names)


def _without(
    some: Mapping[Uuid, Collection[int]], others: Mapping[Uuid, Collection[int]], role: str, names: Names
) -> list[Unit]:
    """Return the units of the partitions in `some` that are not in `others`, sorted."""
    units = []
    for topic, partitions in some.items():
        excluded = others.get(topic, ())
        for partition in partitions:
            if partition not in excluded:
                units.append((names[topic], partition, role))
    units.sort()
    return units


def _pending(current: CurrentAssignment) -> object:
    """Return the pending revocations; a share group has none."""
    return () if isinstance(current, ShareCurrent) else current.pending_revocation


def _partitions(current: CurrentAssignment | None) -> Mapping[Uuid, Collection[int]]:
    if current is None or isinstance(current, StreamsCurrent):
        return {}
    if isinstance(current, ShareCurrent):
        return {topic: frozenset(partitions) for topic, partitions in current.assigned.items()}
    if not current.pending_revocation:
        return current.assigned
    found = {topic: set(partitions) for topic, partitions in current.assigned.items()}
    for topic, partitions in current.pending_revocation.items():
        found.setdefault(topic, set()).update(partitions)
    return found


def _tasks(current: CurrentAssignment | None) -> set[Unit]:
    if not isinstance(current, StreamsCurrent):
        return set()
    return {
        (subtopology, partition, _ROLES[role])
        for held in (current.assigned, current.pending_revocation)
        for role, subtopology, partition in held.units()
    }


def classic_units(group: GroupMetadataValue, member: MemberMetadata) -> set[Unit]:
    """Return the units assigned to a member of a classic group."""
    if group.protocol_type == CONNECT:
        return worker_units(member)
    if group.protocol_type != CONSUMER:
        return set()
    assignment = read_assignment(member.assignment)
    if not assignment:
        return set()
    return {(topic, p, ACTIVE) for topic, partitions in assignment.partitions for p in partitions}


def owners_of_missing(group: ConsumerGroup | StreamsGroup, member_id: str) -> Iterator[str]:
    """Yield the ids of members that own units of a member's target that it does not have yet."""
    if isinstance(group, ConsumerGroup):
        assigned = group.members[member_id].current.assigned
        for topic, partitions in group.targets.get(member_id, {}).items():
            owners, has = group.owners.get(topic, {}), assigned.get(topic, {})
            yield from (owners[p] for p in partitions if p not in has and p in owners)
        return
    member, has_tasks = group.members[member_id], group.members[member_id].current.assigned
    target = group.target_of(member_id)
    for subtopology, partitions in target.active.items():
        for partition in partitions:
            if partition not in has_tasks.active.get(subtopology, ()):
                owner = group.active.get(subtopology, {}).get(partition)
                yield from () if owner is None else (owner,)
    for tasks, held in (
        (target.active, has_tasks.active),
        (target.standby, has_tasks.standby),
        (target.warmup, has_tasks.warmup),
    ):
        for subtopology, partitions in tasks.items():
            for partition in partitions:
                if partition not in held.get(subtopology, ()):
                    yield from _on_its_process(group, member.process_id, subtopology, partition)


def _on_its_process(group: StreamsGroup, process_id: str, subtopology: str, partition: int) -> Iterator[str]:
    """Yield the members of this process that own the task in any role.

    While one does, no other member of the process may get the task."""
    owner = group.active.get(subtopology, {}).get(partition)
    holders = [] if owner is None else [owner]
    for copies in (group.standby, group.warmup):
        holders += copies.get(subtopology, {}).get(partition, ())
    yield from (name for name in sorted(holders) if group.members[name].process_id == process_id)
