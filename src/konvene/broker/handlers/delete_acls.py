"""DeleteAcls: reject all filters with SECURITY_DISABLED, since there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    disabled = DeleteAclsFilterResult(
        error_code=Errors.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=(disabled,) * len(request.filters))
