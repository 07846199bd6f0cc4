"""CreateAcls: authorize the request and submit it to the catalogue; SECURITY_DISABLED without an
authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.cluster.acls import has_unknown_codes
from konvene.errors import Errors
from konvene.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from konvene.runtime.deferred import HANG_UP
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment


async def handle(
    environment: Environment,
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: CreateAclsRequest,
    context: RequestContext,
) -> CreateAclsResponse | object:
    if any(map(has_unknown_codes, request.creations)):
        return HANG_UP
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _failed(request, Errors.CLUSTER_AUTHORIZATION_FAILED, None)
    if not authorization.is_enabled:
        return _failed(request, Errors.SECURITY_DISABLED, "No Authorizer is configured.")
    with_ids = context._replace(fresh_ids=environment.fresh_ids(len(request.creations)))
    response = await catalogue.submit(request, with_ids)
    return _failed(request, response, None) if isinstance(response, Errors) else response


def _failed(request: CreateAclsRequest, error: Errors, message: str | None) -> CreateAclsResponse:
    result = AclCreationResult(error_code=error, error_message=message)
    return CreateAclsResponse(results=(result,) * len(request.creations))
