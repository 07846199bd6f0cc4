"""IncrementalAlterConfigs: change single settings. The catalogue responds once they are in effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.config_permissions import alter_permitted
from konvene.broker.handlers.tls_changes import unusable_tls
from konvene.errors import Errors
from konvene.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.net.listener_security import ListenerSecurity
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    listener_security: ListenerSecurity,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    async def alter(permitted: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        result = await catalogue.submit(permitted, context)
        if isinstance(result, Errors):
            return IncrementalAlterConfigsResponse(
                responses=tuple(_result(resource, result, None) for resource in permitted.resources)
            )
        assert isinstance(result, IncrementalAlterConfigsResponse)
        return result

    response = await alter_permitted(
        authorization,
        request,
        context,
        alter,
        _result,
        lambda permitted: unusable_tls(listener_security, settings, catalogue, permitted, replaces_all=False),
    )
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response


def _result(
    resource: AlterConfigsResource, error: Errors, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
