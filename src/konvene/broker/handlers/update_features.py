"""UpdateFeatures: the catalogue decides; the answer comes when ApiVersions tells the new levels."""

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
    answer = await catalogue.submit(request, context)
    if isinstance(answer, Errors):
        return UpdateFeaturesResponse(error_code=answer, error_message=None)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer
