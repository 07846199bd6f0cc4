"""Which share partitions a share group has, as its log says it: the lists of record 15.

    initializing   the share coordinator was asked to begin with them
    initialized    it has, and they may be assigned
    deleting       topics whose state the share coordinator was asked to forget

A value: each change makes a new one. Topics stand in the order in which they came. A partition can be in both
of the first two lists: its start offset is being altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.shard.image import Topics
from konvene.share_state.requests import SharePartitionKey


class Some(NamedTuple):
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...]

    def with_these(self, name: str, partitions: Iterable[int]) -> Some:
        return Some(name, tuple(sorted({*self.partitions, *partitions})))

    def without(self, partitions: Iterable[int]) -> Some:
        gone = set(partitions)
        return Some(self.name, tuple(p for p in self.partitions if p not in gone))


Listed = Mapping[Uuid, Some]
"""Partitions by topic."""

UNKNOWN = "<UNKNOWN>"
"""Kafka's name of a topic that is not there any more."""


@dataclass(frozen=True, slots=True)
class StateTopics:
    """See the top of this file."""

    initializing: Listed = field(default_factory=dict)
    initialized: Listed = field(default_factory=dict)
    deleting: Mapping[Uuid, str] = field(default_factory=dict)
    """Topic names by id."""

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    @property
    def has_some(self) -> bool:
        """Whether the share coordinator may know partitions that it was not asked to forget."""
        return bool(self.initializing or self.initialized)

    def beginning(self, listed: Listed) -> StateTopics:
        """These are asked for; what was being deleted of them is not any more."""
        initializing = _with(self.initializing, listed)
        deleting = {topic: name for topic, name in self.deleting.items() if topic not in initializing}
        return replace(self, initializing=initializing, deleting=deleting)

    def begun(self, listed: Listed) -> StateTopics:
        """The share coordinator has begun with these."""
        return replace(
            self,
            initializing=_without(self.initializing, listed),
            initialized=_with(self.initialized, listed),
        )

    def not_begun(self, listed: Listed) -> StateTopics:
        """It has not."""
        return replace(self, initializing=_without(self.initializing, listed))

    def ending(self, topics: Mapping[Uuid, str]) -> StateTopics:
        """The state of these topics is to be forgotten."""
        return StateTopics(
            self.initializing,
            {topic: some for topic, some in self.initialized.items() if topic not in topics},
            {**self.deleting, **topics},
        )

    def ended(self, topics: Iterable[Uuid]) -> StateTopics:
        """It is."""
        gone = set(topics)
        return replace(self, deleting={t: name for t, name in self.deleting.items() if t not in gone})

    def whole_end(self, topics: Topics) -> StateTopics:
        """All of it is to be forgotten. What is left of topics that are gone went with them."""
        names = {topic: some.name for topic, some in _with(self.initialized, self.initializing).items()}
        names |= {topic: topics.by_id[topic].name for topic in self.deleting if topic in topics.by_id}
        return StateTopics(deleting=names)

    def left_by(self, topics: Topics) -> StateTopics:
        """Without the topics that do not exist: the very same where all do."""
        known = topics.by_id
        if all(t in known for some in (self.initializing, self.initialized, self.deleting) for t in some):
            return self
        return StateTopics(
            {topic: some for topic, some in self.initializing.items() if topic in known},
            {topic: some for topic, some in self.initialized.items() if topic in known},
            {topic: name for topic, name in self.deleting.items() if topic in known},
        )

    def partitions(self, group_id: str, topics: Topics) -> tuple[SharePartitionKey, ...]:
        """All that the share coordinator may have of the group: of what is being deleted, every partition."""
        listed = _with(self.initialized, self.initializing)
        for topic, name in self.deleting.items():
            if topic in topics.by_id:
                whole = {topic: Some(name, tuple(range(topics.by_id[topic].partitions)))}
                listed = _with(listed, whole)
        return keys(group_id, listed)


def keys(group_id: str, listed: Listed) -> tuple[SharePartitionKey, ...]:
    """The share partitions of a list, as the share coordinator knows them."""
    return tuple(SharePartitionKey(group_id, t, p) for t, some in listed.items() for p in some.partitions)


def by_topic(found: Iterable[SharePartitionKey], topics: Topics) -> Listed:
    """The list of these share partitions."""
    partitions: dict[Uuid, list[int]] = {}
    for key in found:
        partitions.setdefault(key.topic_id, []).append(key.partition)
    return {
        topic: Some(topics.by_id[topic].name if topic in topics.by_id else UNKNOWN, tuple(sorted(some)))
        for topic, some in partitions.items()
    }


def _with(listed: Listed, more: Listed) -> Listed:
    return dict(listed) | {
        topic: listed.get(topic, some).with_these(some.name, some.partitions) for topic, some in more.items()
    }


def _without(listed: Listed, gone: Listed) -> Listed:
    left = {
        topic: some.without(gone[topic].partitions) if topic in gone else some
        for topic, some in listed.items()
    }
    return {topic: some for topic, some in left.items() if some.partitions}
