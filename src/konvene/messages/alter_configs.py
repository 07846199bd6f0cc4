"""AlterConfigs (API key 33): replace all settings of topics, brokers or groups."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Struct, key=33, versions="0-2", flexible="2+"):
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Struct, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse, "0+")
