"""AlterConfigs (API key 33): replaces all configurations of topics, brokers or groups.

Errors: CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST,
INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string("0+")
    """Name of the configuration."""
    value: str | None = string("0+", nullable="0+")
    """Value; None stands for the default."""


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig, "0+")
    """Configurations of the topic or resource."""


class AlterConfigsRequest(Struct, key=33, versions="0-2", flexible="2+"):
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource, "0+")
    """Resources of the request."""
    validate_only: bool = boolean("0+")
    """If true, the request is checked and nothing is changed."""


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    """Error of the resource; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""


class AlterConfigsResponse(Struct, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse, "0+")
    """Results, by topic or resource."""
