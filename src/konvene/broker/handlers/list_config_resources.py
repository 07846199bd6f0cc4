"""ListConfigResources: list the resources that have settings, in the order of Kafka's response.

Version 0 lists client metrics only. The broker collects none, so these are the configured subscriptions.
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
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
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
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: ListConfigResourcesRequest,
    context: RequestContext,
) -> ListConfigResourcesResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    supported = (
        set(_LISTED) if context.api_version >= FIRST_VERSION_WITH_TYPES else {ResourceType.CLIENT_METRICS}
    )
    requested = set(request.resource_types) or supported
    if not requested <= supported:
        return ListConfigResourcesResponse(error_code=Errors.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in _LISTED
            if resource_type in requested
            for name in _names(catalogue, resource_type)
        )
    )


def _names(catalogue: ClusterCatalogue, resource_type: int) -> Iterable[str]:
    """Return the names of the resources of one type, in the order of Kafka's response."""
    if resource_type == ResourceType.TOPIC:
        return catalogue.topics.by_name
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return (str(catalogue.node_id),)
    return sorted(name for type_, name in catalogue.state.configs if type_ == resource_type)
