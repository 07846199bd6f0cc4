"""DescribeAcls (API key 29): lists access rules.

Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Struct, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = int8("0+")
    """Resource type to match."""
    resource_name_filter: str | None = string("0+", nullable="0+")
    """Resource name to match; None matches any."""
    pattern_type_filter: int = int8("1+", default=3)
    """Pattern type to match."""
    principal_filter: str | None = string("0+", nullable="0+")
    """Principal to match; None matches any."""
    host_filter: str | None = string("0+", nullable="0+")
    """Host to match; None matches any."""
    operation: int = int8("0+")
    """Operation to match, or of the access rule."""
    permission_type: int = int8("0+")
    """Permission to match, or of the access rule."""


class AclDescription(Struct):
    principal: str = string("0+")
    """Principal of the access rule, as `type:name`."""
    host: str = string("0+")
    """Host of the access rule; `*` stands for any."""
    operation: int = int8("0+")
    """Operation to match, or of the access rule."""
    permission_type: int = int8("0+")
    """Permission to match, or of the access rule."""


class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    pattern_type: int = int8("1+", default=3)
    """Pattern type of the resource name: literal or prefixed."""
    acls: tuple[AclDescription, ...] = array(AclDescription, "0+")
    """Access rules of the resource."""


class DescribeAclsResponse(Struct, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    resources: tuple[DescribeAclsResource, ...] = array(DescribeAclsResource, "0+")
    """Resources and their access rules."""
