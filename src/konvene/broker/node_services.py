"""The services of a node that its coordinators and the log cleaner use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.net.authorization import Authorization
from konvene.broker.settings import BrokerSettings
from konvene.broker.storage.partitions import Partition, Partitions
from konvene.broker.topic_creator import TopicCreator
from konvene.runtime import ports
from konvene.runtime.environment import Environment
from konvene.runtime.journal import Journal

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter


@dataclass(frozen=True, slots=True)
class NodeServices:
    """Event loop, clock, settings, catalogue, logs and meter of one node."""

    loop: asyncio.AbstractEventLoop
    environment: Environment
    settings: BrokerSettings
    authorization: Authorization
    catalogue: ClusterCatalogue
    topic_creator: TopicCreator
    partitions: Partitions
    meter: Meter | None
    """None if metrics are disabled."""

    def coordinator_ports(
        self, partition: Partition, wrap_journal: Callable[[ports.Journal], ports.Journal]
    ) -> ports.Ports:
        """Return the ports that every type of coordinator needs; `partition` has the coordinator's log.

        `wrap_journal` gets the journal and returns the one to use (tests inject faults). Callers add the
        ports of their type with `dataclasses.replace`."""
        durable = self.settings.config["konvene.log.fsync.internal"]
        return ports.Ports(
            journal=wrap_journal(Journal(partition, durable=durable)),
            loop=self.loop,
            wall_clock_ms=self.environment.wall_clock_ms,
            config=lambda: self.settings.config,
            topics=lambda: self.catalogue.topics,
        )
