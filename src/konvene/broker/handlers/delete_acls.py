"""DeleteAcls: authorize the request and submit it to the catalogue; SECURITY_DISABLED without an
authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    for wanted in request.filters:
        codes = wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation
        if 0 in (*codes, wanted.permission_type):
            return HANG_UP  # As in Kafka, where such a request cannot be parsed.
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _failed(request, Errors.CLUSTER_AUTHORIZATION_FAILED, None)
    if not authorization.is_enabled:
        return _failed(request, Errors.SECURITY_DISABLED, "No Authorizer is configured.")
    response = await catalogue.submit(request, context)
    return _failed(request, response, None) if isinstance(response, Errors) else response


def _failed(request: DeleteAclsRequest, error: Errors, message: str | None) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error, error_message=message)
    return DeleteAclsResponse(filter_results=(result,) * len(request.filters))
