"""The share partitions of a share group by state: the three lists of record 15.

    initializing   their initialization by the share coordinator was requested
    initialized    the share coordinator has initialized them, and they may be assigned
    deleting       topics whose state the share coordinator has to delete

A frozen value; topics are in the order of their addition. A partition can be in both of the first two lists:
its start offset is being altered.
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

    def with_partitions(self, name: str, partitions: Iterable[int]) -> Some:
        return Some(name, tuple(sorted({*self.partitions, *partitions})))

    def without(self, partitions: Iterable[int]) -> Some:
        removed = set(partitions)
        return Some(self.name, tuple(p for p in self.partitions if p not in removed))


Listed = Mapping[Uuid, Some]
"""Partitions by topic id."""

UNKNOWN = "<UNKNOWN>"
"""Kafka's name of a deleted topic."""


@dataclass(frozen=True, slots=True)
class StateTopics:
    """The share partitions of a group, by state."""

    initializing: Listed = field(default_factory=dict)
    initialized: Listed = field(default_factory=dict)
    deleting: Mapping[Uuid, str] = field(default_factory=dict)
    """Topic names by id."""

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    @property
    def has_some(self) -> bool:
        """Whether the share coordinator may have state whose deletion was not requested."""
        return bool(self.initializing or self.initialized)

    def beginning(self, listed: Listed) -> StateTopics:
        """Return the lists after the initialization of these was requested; they are no longer being
        deleted."""
        initializing = _with(self.initializing, listed)
        deleting = {topic: name for topic, name in self.deleting.items() if topic not in initializing}
        return replace(self, initializing=initializing, deleting=deleting)

    def begun(self, listed: Listed) -> StateTopics:
        """Return the lists after the share coordinator initialized these."""
        return replace(
            self,
            initializing=_without(self.initializing, listed),
            initialized=_with(self.initialized, listed),
        )

    def not_begun(self, listed: Listed) -> StateTopics:
        """Return the lists without these as initializing."""
        return replace(self, initializing=_without(self.initializing, listed))

    def ending(self, topics: Mapping[Uuid, str]) -> StateTopics:
        """Return the lists after the deletion of these topics' state was requested."""
        return StateTopics(
            self.initializing,
            {topic: some for topic, some in self.initialized.items() if topic not in topics},
            {**self.deleting, **topics},
        )

    def ended(self, topics: Iterable[Uuid]) -> StateTopics:
        """Return the lists after the state of these topics was deleted."""
        deleted = set(topics)
        return replace(self, deleting={t: name for t, name in self.deleting.items() if t not in deleted})

    def whole_end(self, topics: Topics) -> StateTopics:
        """Return the lists after the deletion of all state was requested. State of deleted topics is deleted
        with them."""
        names = {topic: some.name for topic, some in _with(self.initialized, self.initializing).items()}
        names |= {topic: topics.by_id[topic].name for topic in self.deleting if topic in topics.by_id}
        return StateTopics(deleting=names)

    def left_by(self, topics: Topics) -> StateTopics:
        """Return the lists without deleted topics; the same object if there are none."""
        known = topics.by_id
        if all(t in known for some in (self.initializing, self.initialized, self.deleting) for t in some):
            return self
        return StateTopics(
            {topic: some for topic, some in self.initializing.items() if topic in known},
            {topic: some for topic, some in self.initialized.items() if topic in known},
            {topic: name for topic, name in self.deleting.items() if topic in known},
        )

    def partitions(self, group_id: str, topics: Topics) -> tuple[SharePartitionKey, ...]:
        """Return all partitions of which the share coordinator may have state; every one of a topic being
        deleted."""
        listed = _with(self.initialized, self.initializing)
        for topic, name in self.deleting.items():
            if topic in topics.by_id:
                whole = {topic: Some(name, tuple(range(topics.by_id[topic].partitions)))}
                listed = _with(listed, whole)
        return keys(group_id, listed)


def keys(group_id: str, listed: Listed) -> tuple[SharePartitionKey, ...]:
    """Return the keys of the share partitions in a list."""
    return tuple(SharePartitionKey(group_id, t, p) for t, some in listed.items() for p in some.partitions)


def by_topic(found: Iterable[SharePartitionKey], topics: Topics) -> Listed:
    """Return the list of these share partitions."""
    partitions: dict[Uuid, list[int]] = {}
    for key in found:
        partitions.setdefault(key.topic_id, []).append(key.partition)
    return {
        topic: Some(topics.by_id[topic].name if topic in topics.by_id else UNKNOWN, tuple(sorted(some)))
        for topic, some in partitions.items()
    }


def _with(listed: Listed, more: Listed) -> Listed:
    return dict(listed) | {
        topic: listed.get(topic, some).with_partitions(some.name, some.partitions)
        for topic, some in more.items()
    }


def _without(listed: Listed, removed: Listed) -> Listed:
    left = {
        topic: some.without(removed[topic].partitions) if topic in removed else some
        for topic, some in listed.items()
    }
    return {topic: some for topic, some in left.items() if some.partitions}
