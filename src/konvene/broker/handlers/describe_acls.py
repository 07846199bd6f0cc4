"""DescribeAcls: list the ACLs that a filter selects, by resource pattern."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from konvene.cluster.acls import acl_filter, has_unknown_codes
from konvene.errors import Errors
from konvene.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from konvene.runtime.deferred import HANG_UP
from konvene.security.acls import Acl
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: DescribeAclsRequest,
    context: RequestContext,
) -> DescribeAclsResponse | object:
    if has_unknown_codes(request):
        return HANG_UP
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        return DescribeAclsResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    if not authorization.is_enabled:
        return DescribeAclsResponse(
            error_code=Errors.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    selected = acl_filter(request)
    found = sorted(set(filter(selected.matches, catalogue.state.acls.values())))
    return DescribeAclsResponse(
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(map(_description, acls)),
            )
            for (resource_type, name, pattern_type), acls in groupby(found, key=lambda acl: acl[:3])
        ),
    )


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
