"""IncrementalAlterConfigs: change single settings. The catalogue responds once they are in effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


async def handle(
    catalogue: ClusterCatalogue, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return IncrementalAlterConfigsResponse(
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
    assert isinstance(result, IncrementalAlterConfigsResponse)
    return result
