"""AlterConfigs: replace all settings of resources. The catalogue decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.config_permissions import alter_permitted
from konvene.broker.handlers.tls_changes import unusable_tls
from konvene.errors import Errors
from konvene.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
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
    request: AlterConfigsRequest,
    context: RequestContext,
) -> AlterConfigsResponse:
    async def alter(permitted: AlterConfigsRequest) -> AlterConfigsResponse:
        result = await catalogue.submit(permitted, context)
        if isinstance(result, Errors):
            return AlterConfigsResponse(
                responses=tuple(_result(resource, result, None) for resource in permitted.resources)
            )
        assert isinstance(result, AlterConfigsResponse)
        return result

    response = await alter_permitted(
        authorization,
        request,
        context,
        alter,
        _result,
        lambda permitted: unusable_tls(listener_security, settings, catalogue, permitted, replaces_all=True),
    )
    assert isinstance(response, AlterConfigsResponse)
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
