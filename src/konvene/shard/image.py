"""What a coordinator may know of topics: names, ids, partitions and their racks. A value; a change makes a
new one.

While nothing changes it is the same object: whoever remembers it sees by identity whether anything did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from konvene.codec.uuid import Uuid


class Topic(NamedTuple):
    """A topic as the catalogue has it."""

    name: str
    id: Uuid
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    """For each partition the racks of its replicas, of those that have one; empty where none has."""

    @property
    def rack_sets(self) -> tuple[frozenset[str], ...]:
        """The same without an order; empty where no replica has a rack. Equal racks are one set."""
        return _rack_sets(self.racks) if any(self.racks) else ()


@lru_cache(maxsize=1_000)
def _rack_sets(racks: tuple[tuple[str, ...], ...]) -> tuple[frozenset[str], ...]:
    known: dict[tuple[str, ...], frozenset[str]] = {}
    return tuple(known.setdefault(each, frozenset(each)) for each in racks)


class Topics:
    """All topics, by name and by id.

    `version`: how many topics had ever been made, also before the broker was last started. Partitions that
    are added and topics that are deleted make another value, of the same version."""

    __slots__ = ("by_id", "by_name", "version")

    def __init__(self, topics: Iterable[Topic] = (), version: int = 0) -> None:
        self.version = version
        self.by_name: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self.by_id: Mapping[Uuid, Topic] = {topic.id: topic for topic in self.by_name.values()}

    def __repr__(self) -> str:
        return f"Topics({len(self.by_name)})"

    def has(self, name: str, partition: int) -> bool:
        topic = self.by_name.get(name)
        return topic is not None and 0 <= partition < topic.partitions


NO_TOPICS = Topics()
