"""The coordinators of one kind on this node: one for each partition of an internal topic.

The topic and the coordinators are created when the first request needs one, once for all concurrent requests.
The hash of a key (a group id, a transactional id, a share partition) selects its coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from konvene.codec.hashes import group_partition
from konvene.runtime.ports import EventLoop, Journal

if TYPE_CHECKING:
    from konvene.runtime.coordinator import Coordinator


class InternalTopicHost(Protocol):
    """A service that creates internal topics and knows which of their logs are open."""

    async def create_internal(self, topic: str) -> None:
        """Create the topic unless it exists."""

    def open_partitions(self, topic: str) -> int:
        """Return the topic's partition count, or 0 while it does not exist or its logs are not open yet."""


class Coordinators:
    """The coordinators of one internal topic. A subclass makes each of them in `_coordinator`."""

    def __init__(self, topic: str, loop: EventLoop, topic_host: InternalTopicHost) -> None:
        self.wrap_journal: Callable[[Journal], Journal] = lambda journal: journal
        """Wraps each coordinator's journal; tests inject faults here."""
        self._topic = topic
        self._loop = loop
        self._topic_host = topic_host
        self._coordinators: list[Coordinator | None] = []
        self._making: asyncio.Task[None] | None = None
        self._loading: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<{len(self._coordinators)} coordinators of {self._topic}>"

    @property
    def ready(self) -> bool:
        return bool(self._coordinators)

    def of(self, key: str) -> Coordinator | None:
        """Return the coordinator of a key; None before it is created, or if its log is damaged."""
        if not self._coordinators:
            return None
        return self._coordinators[self.index_of(key)]

    def index_of(self, key: str) -> int:
        """Return the partition of the topic that holds the key. Requires that the coordinators exist."""
        return group_partition(key, len(self._coordinators))

    def at(self, index: int) -> Coordinator | None:
        """Return the coordinator of a partition; None before it is created, or if its log is damaged."""
        return self._coordinators[index] if index < len(self._coordinators) else None

    def all(self) -> list[Coordinator]:
        return [c for c in self._coordinators if c is not None]

    async def make_ready(self) -> None:
        """Create the topic and the coordinators unless they exist.

        Concurrent callers share one attempt, which completes even if they are cancelled."""
        if self._making is None or self._making.done():
            self._making = self._loop.create_task(self._make_ready())
        await asyncio.shield(self._making)

    async def _make_ready(self) -> None:
        await self._topic_host.create_internal(self._topic)
        self.start()

    def start(self) -> None:
        """Make the coordinators and start to load them, if the topic exists and its logs are open."""
        count = self._topic_host.open_partitions(self._topic)
        if count and not self._coordinators:
            self._coordinators = [self._coordinator(index) for index in range(count)]
            self._loading = [coordinator.load() for coordinator in self.all()]

    def _coordinator(self, index: int) -> Coordinator | None:
        """Make the coordinator of a partition; None if the partition's log is damaged."""
        raise NotImplementedError

    async def loaded(self) -> None:
        """Wait until all coordinators have read their logs."""
        if self._loading:
            await asyncio.wait(self._loading)

    async def close(self) -> None:
        """Close all coordinators, one after another."""
        for coordinator in self.all():
            await coordinator.close()
