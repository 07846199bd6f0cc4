"""DeleteAcls: authorize the request and submit it to the catalogue; SECURITY_DISABLED without an
authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.cluster.acls import has_unknown_codes
from konvene.errors import Errors
from konvene.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from konvene.runtime.deferred import HANG_UP
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: DeleteAclsRequest,
    context: RequestContext,
) -> DeleteAclsResponse | object:
    if any(map(has_unknown_codes, request.filters)):
        return HANG_UP
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _failed(request, Errors.CLUSTER_AUTHORIZATION_FAILED, None)
    if not authorization.is_enabled:
        return _failed(request, Errors.SECURITY_DISABLED, "No Authorizer is configured.")
    response = await catalogue.submit(request, context)
    return _failed(request, response, None) if isinstance(response, Errors) else response


def _failed(request: DeleteAclsRequest, error: Errors, message: str | None) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error, error_message=message)
    return DeleteAclsResponse(filter_results=(result,) * len(request.filters))
