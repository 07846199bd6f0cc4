"""An immutable image of the topics: names, ids, partitions and their racks. A change makes a new value.

While nothing changes the image is the same object, so comparing by identity detects any change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from konvene.codec.uuid import Uuid


class Topic(NamedTuple):
    """A topic: its name, id and number of partitions."""

    name: str
    id: Uuid
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    """The racks of each partition's replicas, replicas without a rack left out; empty if none has one."""

    @property
    def rack_sets(self) -> tuple[frozenset[str], ...]:
        """Return `racks` as sets, one per partition; empty if no replica has a rack.

        Partitions with equal racks share one set."""
        return _rack_sets(self.racks) if any(self.racks) else ()


@lru_cache(maxsize=1_000)
def _rack_sets(racks: tuple[tuple[str, ...], ...]) -> tuple[frozenset[str], ...]:
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    return tuple(sets.setdefault(replica_racks, frozenset(replica_racks)) for replica_racks in racks)


class Topics:
    """An image of all topics, by name and by id.

    `version` counts the topics ever created, across restarts of the broker. If partitions are added or topics
    are deleted, the new image has the same version."""

    __slots__ = ("by_id", "by_name", "version")

    def __init__(self, topics: Iterable[Topic] = (), version: int = 0) -> None:
        self.version = version
        self.by_name: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self.by_id: Mapping[Uuid, Topic] = {topic.id: topic for topic in self.by_name.values()}

    def __repr__(self) -> str:
        return f"Topics({len(self.by_name)})"

    def has(self, name: str, partition: int) -> bool:
        """Return whether the topic exists and has this partition."""
        topic = self.by_name.get(name)
        return topic is not None and 0 <= partition < topic.partitions


NO_TOPICS = Topics()
