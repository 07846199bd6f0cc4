"""UpdateFeatures: change feature levels. The catalogue responds once ApiVersions returns the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: UpdateFeaturesRequest,
    context: RequestContext,
) -> UpdateFeaturesResponse:
    if not authorization.permits_cluster(context, Operation.ALTER):
        denied = Errors.CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=denied, error_message=MESSAGES[denied])
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return UpdateFeaturesResponse(error_code=result, error_message=None)
    assert isinstance(result, UpdateFeaturesResponse)
    return result
