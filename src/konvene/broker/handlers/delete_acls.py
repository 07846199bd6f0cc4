"""DeleteAcls: without an authorizer there are no access rules to remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=Errors.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
