"""AlterConfigs: replace all settings of resources. The catalogue decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


async def handle(
    catalogue: ClusterCatalogue, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return AlterConfigsResponse(
            responses=tuple(
                AlterConfigsResourceResponse(
                    error_code=result,
                    error_message=None,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            )
        )
    assert isinstance(result, AlterConfigsResponse)
    return result
