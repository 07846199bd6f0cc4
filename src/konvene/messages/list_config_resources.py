"""ListConfigResources (API key 74): lists the resources that have configurations (KIP-1142).

Errors: CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Struct, key=74, versions="0-1", flexible="0+"):
    resource_types: tuple[int, ...] = array(int8, "1+")
    """Types to list; empty lists all supported ones."""


class ConfigResource(Struct):
    resource_name: str = string("0+")
    """Name of the resource."""
    resource_type: int = int8("1+", default=16, ignorable=True)
    """Type of the resource."""


class ListConfigResourcesResponse(Struct, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource, "0+")
    """Resources with configurations."""
