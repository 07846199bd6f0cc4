"""The services that handlers can name in their signatures.

A handler takes the services that it uses, then the request and its context:

    def handle(catalogue: ClusterCatalogue, partitions: Partitions, request: ListOffsetsRequest,
               context: RequestContext) -> ListOffsetsResponse

`bind` looks its parameters up by name, once, when its API is first used (`docs/decisions`). A test checks
that the annotations are those of `Services`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.net.client_metrics import Telemetry
    from konvene.broker.net.fetch_sessions import FetchSessions
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.net.listener_security import ListenerSecurity
    from konvene.broker.net.supported_apis import SupportedApis
    from konvene.broker.producer_ids import ProducerIds
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.topic_creator import TopicCreator
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.log.directory import LogDirectory
    from konvene.runtime.environment import Environment

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that a broker's handlers can use: a handler's parameter has the name of a field here."""

    loop: asyncio.AbstractEventLoop
    environment: Environment
    settings: BrokerSettings
    authorization: Authorization
    catalogue: ClusterCatalogue
    topic_creator: TopicCreator
    producer_ids: ProducerIds
    directory: LogDirectory
    partitions: Partitions
    supported_apis: SupportedApis
    fetch_sessions: FetchSessions
    telemetry: Telemetry
    heartbeat_purgatory: HeartbeatPurgatory
    listener_security: ListenerSecurity
    groups: GroupCoordinators
    share_state_work: ShareStateWork
    share_coordinators: ShareCoordinators
    share_partitions: SharePartitions
    transactions: TransactionCoordinators


def service_parameters(handler: Callable[..., object]) -> tuple[Parameter, ...]:
    """Return the parameters of a handler that name services: all positional ones but the last two."""
    positional = [p for p in signature(handler).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return tuple(positional[:-2])


def bind(handler: Callable[..., R], services: object) -> Callable[..., R]:
    """Return the handler as a function of a request and its context, with its services bound.

    `services` is a `Services`, or any object that has the attributes that the handler's parameters name. They
    are bound as positional arguments, so calling the result is as fast as calling the handler."""
    names = [parameter.name for parameter in service_parameters(handler)]
    return partial(handler, *(getattr(services, name) for name in names)) if names else handler
