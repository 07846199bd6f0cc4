"""CreateAcls (API key 30): creates access rules.

Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    resource_pattern_type: int = int8("1+", default=3)
    """Pattern type of the resource name: literal or prefixed."""
    principal: str = string("0+")
    """Principal of the access rule, as `type:name`."""
    host: str = string("0+")
    """Host of the access rule; `*` stands for any."""
    operation: int = int8("0+")
    """Operation of the access rule."""
    permission_type: int = int8("0+")
    """Permission of the access rule: deny or allow."""


class CreateAclsRequest(Struct, key=30, versions="1-3", flexible="2+"):
    creations: tuple[AclCreation, ...] = array(AclCreation, "0+")
    """Access rules to create."""


class AclCreationResult(Struct):
    error_code: int = int16("0+")
    """Error of the access rule; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""


class CreateAclsResponse(Struct, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[AclCreationResult, ...] = array(AclCreationResult, "0+")
    """Results, in the order of the request."""
