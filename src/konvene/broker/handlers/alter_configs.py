"""AlterConfigs: what is given replaces all that was set; the catalogue decides."""

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
    answer = await catalogue.submit(request, context)
    if isinstance(answer, Errors):
        return AlterConfigsResponse(
            responses=tuple(
                AlterConfigsResourceResponse(
                    error_code=answer,
                    error_message=None,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            )
        )
    assert isinstance(answer, AlterConfigsResponse)
    return answer
