"""What members' records say that they have, as units with names.

Of a consumer group's member: partitions by topic id, with the topic's name where that is known. Of a streams
group's: tasks by subtopology, in three roles. Of a classic one: what its group's leader gave it, where the
group speaks the consumer protocol; what other protocols (Connect's) hand out has no units. Of a share group's
member: partitions, which others may have at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from konvene.codec.uuid import Uuid
from konvene.groups.classic.subscriptions import CONSUMER, read_assignment
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.share.current_assignment import CurrentAssignment as ShareCurrent
from konvene.groups.streams.current_assignment import CurrentAssignment as StreamsCurrent
from konvene.groups.streams.group import StreamsGroup
from konvene.pipeline.reduce.ownership import ACTIVE, SHARED, Unit
from konvene.records.classic import GroupMetadataValue, MemberMetadata

__all__ = ["Names", "changes", "classic_units", "owners_of_wanted"]

_ROLES = (ACTIVE, "standby", "warmup")


class Names:
    """Names of topics by their ids. A topic of which none is known goes by its id."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._seen: dict[Uuid, str] = {}

    def __repr__(self) -> str:
        return f"<names of {len(self._names)} topics>"

    def learn(self, names: Mapping[str, str]) -> bool:
        """These are the names now: whether all topics that were named go by the same ones still."""
        self._names = dict(names)
        return all(names.get(text := str(Uuid(known)), text) == told for known, told in self._seen.items())

    def __getitem__(self, topic_id: Uuid) -> str:
        name = self._seen.get(topic_id)
        if name is None:
            text = str(Uuid(topic_id))
            name = self._seen[topic_id] = self._names.get(text, text)
        return name


def changes(before: Any, after: Any, names: Names) -> tuple[list[Unit], list[Unit]]:
    """What a member of a group that assigns lost and gained, in order. None: it was, or is, no member."""
    if (
        before is not None
        and after is not None
        and before.assigned == after.assigned
        and _pending(before) == _pending(after)
    ):
        return [], []
    kind = type(before if after is None else after)
    if kind is StreamsCurrent:
        had, has = _tasks(before), _tasks(after)
        return sorted(had - has), sorted(has - had)
    role = SHARED if kind is ShareCurrent else ACTIVE
    had_raw, has_raw = _partitions(before), _partitions(after)
    lost = sorted((names[topic], partition, role) for topic, partition in had_raw - has_raw)
    gained = sorted((names[topic], partition, role) for topic, partition in has_raw - had_raw)
    return lost, gained


def _pending(current: Any) -> Any:
    """What a member was told to give up; there is no such thing in a share group."""
    return () if type(current) is ShareCurrent else current.pending_revocation


def _partitions(current: Any) -> set[tuple[Uuid, int]]:
    if current is None:
        return set()
    found = {(topic, p) for topic, partitions in current.assigned.items() for p in partitions}
    if type(current) is ShareCurrent:
        return found
    for topic, partitions in current.pending_revocation.items():
        found.update((topic, p) for p in partitions)
    return found


def _tasks(current: StreamsCurrent | None) -> set[Unit]:
    if current is None:
        return set()
    return {
        (subtopology, partition, _ROLES[role])
        for held in (current.assigned, current.pending_revocation)
        for role, subtopology, partition in held.units()
    }


def classic_units(group: GroupMetadataValue, member: MemberMetadata) -> set[Unit]:
    """What a member of a classic group was given."""
    if group.protocol_type != CONSUMER:
        return set()
    said = read_assignment(member.assignment)
    return {(t, p, ACTIVE) for t, partitions in said.partitions for p in partitions} if said else set()


def owners_of_wanted(group: ConsumerGroup | StreamsGroup, member_id: str) -> Iterator[str]:
    """The member ids of those who have what a member is meant to have and has not."""
    if isinstance(group, ConsumerGroup):
        assigned = group.members[member_id].current.assigned
        for topic, partitions in group.targets.get(member_id, {}).items():
            owners, has = group.owners.get(topic, {}), assigned.get(topic, {})
            yield from (owners[p] for p in partitions if p not in has and p in owners)
        return
    mine, has_tasks = group.members[member_id], group.members[member_id].current.assigned
    wanted = group.target_of(member_id)
    for subtopology, some in wanted.active.items():
        for partition in some:
            if partition not in has_tasks.active.get(subtopology, ()):
                owner = group.active.get(subtopology, {}).get(partition)
                yield from () if owner is None else (owner,)
    for tasks, held in (
        (wanted.active, has_tasks.active),
        (wanted.standby, has_tasks.standby),
        (wanted.warmup, has_tasks.warmup),
    ):
        for subtopology, some in tasks.items():
            for partition in some:
                if partition not in held.get(subtopology, ()):
                    yield from _on_its_process(group, mine.process_id, subtopology, partition)


def _on_its_process(group: StreamsGroup, process_id: str, subtopology: str, partition: int) -> Iterator[str]:
    """Members of a process that have a task in whatever role: no other one of it may have it as well."""
    owner = group.active.get(subtopology, {}).get(partition)
    holders = [] if owner is None else [owner]
    for copies in (group.standby, group.warmup):
        holders += copies.get(subtopology, {}).get(partition, ())
    yield from (name for name in sorted(holders) if group.members[name].process_id == process_id)
