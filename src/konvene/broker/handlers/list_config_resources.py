"""ListConfigResources: the resources that have settings, in the order of Kafka's answer.

Version 0 knew client metrics only; nothing here subscribes to any, so there are those that were set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.cluster.state import ResourceType
from konvene.errors import Errors
from konvene.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_TYPES = 1

_LISTED = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    catalogue: ClusterCatalogue, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    known = set(_LISTED) if context.api_version >= FIRST_VERSION_WITH_TYPES else {ResourceType.CLIENT_METRICS}
    asked = set(request.resource_types) or known
    if not asked <= known:
        return ListConfigResourcesResponse(error_code=Errors.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if kind in asked
            for name in _names(catalogue, kind)
        )
    )


def _names(catalogue: ClusterCatalogue, kind: int) -> Iterable[str]:
    """Return the names of the resources of one type, in the order of Kafka's response."""
    if kind == ResourceType.TOPIC:
        return catalogue.topics.by_name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return (str(catalogue.node_id),)
    return sorted(name for of, name in catalogue.state.configs if of == kind)
