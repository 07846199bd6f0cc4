"""DescribeAcls: respond with SECURITY_DISABLED, since there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=Errors.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
