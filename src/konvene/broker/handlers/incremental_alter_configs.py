"""IncrementalAlterConfigs: the catalogue decides; the answer comes when the settings are in force."""

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
    answer = await catalogue.submit(request, context)
    if isinstance(answer, Errors):
        return IncrementalAlterConfigsResponse(
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
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    return answer
