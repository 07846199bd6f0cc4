"""The services that all connections of a broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.metrics.meter import Meter
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.net.client_metrics import Telemetry
    from konvene.broker.net.client_quotas import ClientQuotas
    from konvene.broker.net.connection import Connection
    from konvene.broker.net.connection_quotas import ConnectionQuotas
    from konvene.broker.net.connection_rates import ConnectionAdmission
    from konvene.broker.net.frame_buffers import FrameBufferPool
    from konvene.broker.net.frames import Route
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.net.request_scheduler import RequestScheduler
    from konvene.broker.net.response_cache import ResponseCache
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions


@dataclass(slots=True, kw_only=True)
class Network:
    """The services that connections use, and the set of open connections."""

    loop: asyncio.AbstractEventLoop
    wall_clock_ms: Callable[[], int]
    settings: BrokerSettings
    authorization: Authorization
    routes: dict[int, Route]
    """API key to route."""
    connection_quotas: ConnectionQuotas
    connection_admission: ConnectionAdmission
    client_quotas: ClientQuotas
    request_scheduler: RequestScheduler
    response_cache: ResponseCache
    heartbeat_purgatory: HeartbeatPurgatory
    frame_buffers: FrameBufferPool
    telemetry: Telemetry
    groups: GroupCoordinators
    share_partitions: SharePartitions
    meter: Meter | None
    max_request_bytes: int
    connections: dict[Connection, None] = field(default_factory=dict)
