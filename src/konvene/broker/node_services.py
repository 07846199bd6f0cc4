"""The services that all coordinators of this node build on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.settings import BrokerSettings
from konvene.broker.storage.partitions import Partitions
from konvene.broker.topic_creator import TopicCreator
from konvene.runtime.environment import Environment

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter


@dataclass(frozen=True, slots=True)
class NodeServices:
    """Event loop, clock, settings, catalogue, logs and meter of one node."""

    loop: asyncio.AbstractEventLoop
    environment: Environment
    settings: BrokerSettings
    catalogue: ClusterCatalogue
    topic_creator: TopicCreator
    partitions: Partitions
    meter: Meter | None
    """None where metrics are switched off."""
