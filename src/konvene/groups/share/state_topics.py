"""The share partitions of a share group by state: the three lists of record 15.

    initializing   their initialization by the share coordinator was requested
    initialized    the share coordinator has initialized them, and they may be assigned
    deleting       topics whose state the share coordinator has to delete

Topics are in the order of their addition. A partition is in both of the first two lists while its start
offset is being altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.shard.image import Topics
from konvene.share_state.requests import SharePartitionKey


class ListedPartitions(NamedTuple):
    """The partitions of one topic in a list, and the name of the topic."""

    name: str
    partitions: tuple[int, ...]

    def with_partitions(self, name: str, partitions: Iterable[int]) -> ListedPartitions:
        return ListedPartitions(name, tuple(sorted({*self.partitions, *partitions})))

    def without(self, partitions: Iterable[int]) -> ListedPartitions:
        removed = set(partitions)
        return ListedPartitions(self.name, tuple(p for p in self.partitions if p not in removed))


PartitionsByTopic = Mapping[Uuid, ListedPartitions]
"""One of the lists: partitions by topic id."""

UNKNOWN = "<UNKNOWN>"
"""Kafka's name of a deleted topic."""


@dataclass(frozen=True, slots=True)
class StateTopics:
    """The share partitions of a group by state: an immutable value, whose methods return changed copies."""

    initializing: PartitionsByTopic = field(default_factory=dict)
    initialized: PartitionsByTopic = field(default_factory=dict)
    deleting: Mapping[Uuid, str] = field(default_factory=dict)
    """Topic names by id."""

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    @property
    def has_state(self) -> bool:
        """Return whether any partition is initializing or initialized.

        The share coordinator may then have state of the group whose deletion was not requested.
        """
        return bool(self.initializing or self.initialized)

    def with_initializing(self, listed: PartitionsByTopic) -> StateTopics:
        """Add partitions whose initialization is requested, and take their topics out of `deleting`."""
        initializing = _with(self.initializing, listed)
        deleting = {topic: name for topic, name in self.deleting.items() if topic not in initializing}
        return replace(self, initializing=initializing, deleting=deleting)

    def with_initialized(self, listed: PartitionsByTopic) -> StateTopics:
        """Move partitions that the share coordinator has initialized to `initialized`."""
        return replace(
            self,
            initializing=_without(self.initializing, listed),
            initialized=_with(self.initialized, listed),
        )

    def without_initializing(self, listed: PartitionsByTopic) -> StateTopics:
        """Remove partitions from `initializing`."""
        return replace(self, initializing=_without(self.initializing, listed))

    def with_deleting(self, topics: Mapping[Uuid, str]) -> StateTopics:
        """Move topics from `initialized` to `deleting`, because the deletion of their state is requested."""
        return StateTopics(
            self.initializing,
            {topic: some for topic, some in self.initialized.items() if topic not in topics},
            {**self.deleting, **topics},
        )

    def without_deleting(self, topics: Iterable[Uuid]) -> StateTopics:
        """Remove topics whose state was deleted from `deleting`."""
        deleted = set(topics)
        return replace(self, deleting={t: name for t, name in self.deleting.items() if t not in deleted})

    def with_all_deleting(self, topics: Topics) -> StateTopics:
        """Move all topics to `deleting`; drop those that were there already and do not exist any more.

        `topics`: the existing topics.
        """
        names = {topic: some.name for topic, some in _with(self.initialized, self.initializing).items()}
        names |= {topic: topics.by_id[topic].name for topic in self.deleting if topic in topics.by_id}
        return StateTopics(deleting=names)

    def without_deleted_topics(self, topics: Topics) -> StateTopics:
        """Remove topics that do not exist any more; return the same object if there are none."""
        known = topics.by_id
        if all(t in known for some in (self.initializing, self.initialized, self.deleting) for t in some):
            return self
        return StateTopics(
            {topic: some for topic, some in self.initializing.items() if topic in known},
            {topic: some for topic, some in self.initialized.items() if topic in known},
            {topic: name for topic, name in self.deleting.items() if topic in known},
        )

    def partitions(self, group_id: str, topics: Topics) -> tuple[SharePartitionKey, ...]:
        """Return all partitions of which the share coordinator may have state.

        For a topic in `deleting`, whose partitions are not listed, these are all partitions of the topic.
        """
        listed = _with(self.initialized, self.initializing)
        for topic, name in self.deleting.items():
            if topic in topics.by_id:
                whole = {topic: ListedPartitions(name, tuple(range(topics.by_id[topic].partitions)))}
                listed = _with(listed, whole)
        return keys(group_id, listed)


def keys(group_id: str, listed: PartitionsByTopic) -> tuple[SharePartitionKey, ...]:
    """Return the key of each share partition in a list."""
    return tuple(SharePartitionKey(group_id, t, p) for t, some in listed.items() for p in some.partitions)


def by_topic(found: Iterable[SharePartitionKey], topics: Topics) -> PartitionsByTopic:
    """Return these share partitions by topic id, with the topic's name; `UNKNOWN` for a deleted topic."""
    partitions: dict[Uuid, list[int]] = {}
    for key in found:
        partitions.setdefault(key.topic_id, []).append(key.partition)
    return {
        topic: ListedPartitions(
            topics.by_id[topic].name if topic in topics.by_id else UNKNOWN, tuple(sorted(some))
        )
        for topic, some in partitions.items()
    }


def _with(listed: PartitionsByTopic, more: PartitionsByTopic) -> PartitionsByTopic:
    return dict(listed) | {
        topic: listed.get(topic, some).with_partitions(some.name, some.partitions)
        for topic, some in more.items()
    }


def _without(listed: PartitionsByTopic, removed: PartitionsByTopic) -> PartitionsByTopic:
    left = {
        topic: some.without(removed[topic].partitions) if topic in removed else some
        for topic, some in listed.items()
    }
    return {topic: some for topic, some in left.items() if some.partitions}
