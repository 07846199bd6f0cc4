"""The coordinators of one kind on this node: one for each partition of a topic of the broker's own.

There are none until somebody looks for one: then the topic is made, and they are, once for all who ask
meanwhile. Which of them has a key is told by the hash of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.hashes import group_partition
from konvene.runtime.ports import Journal

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Coordinator


class Coordinators:
    """See the top of this file. A subclass says how one is made (`_coordinator`)."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.between: Callable[[Journal], Journal] = lambda journal: journal
        """What stands between coordinators and their logs: nothing, where no test has put faults there."""
        self._broker = broker
        self._topic = topic
        self._coordinators: list[Coordinator | None] = []
        self._making: asyncio.Task[None] | None = None
        self._loading: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<{len(self._coordinators)} coordinators of {self._topic}>"

    @property
    def ready(self) -> bool:
        return bool(self._coordinators)

    def of(self, key: str) -> Coordinator | None:
        """Whose the key is. None where there is no coordinator yet, or its partition's log is damaged."""
        if not self._coordinators:
            return None
        return self._coordinators[self.index_of(key)]

    def index_of(self, key: str) -> int:
        """The partition of the topic that has the key. Only where there are coordinators."""
        return group_partition(key, len(self._coordinators))

    def at(self, index: int) -> Coordinator | None:
        """The coordinator of a partition of the topic."""
        return self._coordinators[index] if index < len(self._coordinators) else None

    def all(self) -> list[Coordinator]:
        return [c for c in self._coordinators if c is not None]

    async def make_ready(self) -> None:
        """Create the topic, if it is not there, and the coordinators.

        Once for all who ask at the same time, and to its end even if they hang up."""
        if self._making is None or self._making.done():
            self._making = self._broker.loop.create_task(self._make_ready())
        await asyncio.shield(self._making)

    async def _make_ready(self) -> None:
        await self._broker.create_internal(self._topic)
        self.start()

    def start(self) -> None:
        """Make and load the coordinators of the topic, if it is there."""
        topic = self._broker.topics.by_name.get(self._topic)
        if topic is not None and not self._coordinators and self._is_open(topic.partitions):
            self._coordinators = [self._coordinator(index) for index in range(topic.partitions)]
            self._loading = [coordinator.load() for coordinator in self.all()]

    def _is_open(self, count: int) -> bool:
        """Whether the partitions are there: a topic is known a moment before its logs are."""
        known = self._broker.partitions
        return all(
            known.get(self._topic, index) is not None or (self._topic, index) in known.offline
            for index in range(count)
        )

    def _coordinator(self, index: int) -> Coordinator | None:
        """Made of the partition; None where its log is damaged."""
        raise NotImplementedError

    async def loaded(self) -> None:
        """Return when the coordinators that are there have read their logs."""
        if self._loading:
            await asyncio.wait(self._loading)

    async def close(self) -> None:
        """Serve no more."""
        for coordinator in self.all():
            await coordinator.close()
