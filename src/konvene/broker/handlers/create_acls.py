"""CreateAcls: reject all ACLs with SECURITY_DISABLED, since there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    disabled = AclCreationResult(
        error_code=Errors.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=(disabled,) * len(request.creations))
