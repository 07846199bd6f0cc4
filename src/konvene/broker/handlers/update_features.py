"""UpdateFeatures: change feature levels. The catalogue responds once ApiVersions returns the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


async def handle(
    catalogue: ClusterCatalogue, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return UpdateFeaturesResponse(error_code=result, error_message=None)
    assert isinstance(result, UpdateFeaturesResponse)
    return result
