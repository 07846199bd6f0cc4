"""DescribeConfigs (API key 32): lists configurations of topics, brokers and groups with their sources.

Errors: CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST,
INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    configuration_keys: tuple[str, ...] | None = array(string, "0+", nullable="0+")
    """Names of the configurations to return; None returns all."""


class DescribeConfigsRequest(Struct, key=32, versions="1-4", flexible="4+"):
    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource, "0+")
    """Resources of the request."""
    include_synonyms: bool = boolean("1+")
    """True to include the sources that each value overrides."""
    include_documentation: bool = boolean("3+")
    """True to include the documentation."""


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    """Name of the configuration."""
    value: str | None = string("1+", nullable="0+")
    """Value; None stands for the default."""
    source: int = int8("1+")
    """Where the value comes from."""


class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    """Name of the configuration."""
    value: str | None = string("0+", nullable="0+")
    """Value; None stands for the default."""
    read_only: bool = boolean("0+")
    """True if the configuration cannot be changed while the broker runs."""
    config_source: int = int8("1+", default=-1, ignorable=True)
    """Where the value comes from: topic, broker, default or group."""
    is_sensitive: bool = boolean("0+")
    """True if the value is a secret and is left out."""
    synonyms: tuple[DescribeConfigsSynonym, ...] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    """Values from all sources, in order of precedence."""
    config_type: int = int8("3+", ignorable=True)
    """Type of the value."""
    documentation: str | None = string("3+", nullable="0+", ignorable=True)
    """Documentation of the configuration; None if it was not requested."""


class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    """Error of the resource; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    configs: tuple[DescribeConfigsResourceResult, ...] = array(DescribeConfigsResourceResult, "0+")
    """Configurations of the topic or resource."""


class DescribeConfigsResponse(Struct, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult, "0+")
    """Resources and their configurations."""
