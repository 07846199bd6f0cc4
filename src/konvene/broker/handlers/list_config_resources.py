"""ListConfigResources: the resources that have settings, in the order of Kafka's answer.

Version 0 knew client metrics only; nothing here subscribes to any, so there are those that were set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from konvene.cluster.state import ResourceType
from konvene.errors import Errors
from konvene.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call

FIRST_VERSION_WITH_TYPES = 1


def handle(broker: Broker, request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    known = set(_LISTED) if call.api_version >= FIRST_VERSION_WITH_TYPES else {ResourceType.CLIENT_METRICS}
    asked = set(request.resource_types) or known
    if not asked <= known:
        return ListConfigResourcesResponse(error_code=Errors.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in _LISTED.items()
            if kind in asked
            for name in names(broker)
        )
    )


def _configured(kind: ResourceType) -> Callable[[Broker], Iterable[str]]:
    return lambda broker: sorted(name for of, name in broker.state.configs if of == kind)


def _this_node(broker: Broker) -> Iterable[str]:
    return (str(broker.node_id),)


def _topics(broker: Broker) -> Iterable[str]:
    return broker.topics.by_name


_LISTED: dict[int, Callable[[Broker], Iterable[str]]] = {
    ResourceType.GROUP: _configured(ResourceType.GROUP),
    ResourceType.CLIENT_METRICS: _configured(ResourceType.CLIENT_METRICS),
    ResourceType.BROKER_LOGGER: _this_node,
    ResourceType.BROKER: _this_node,
    ResourceType.TOPIC: _topics,
}
