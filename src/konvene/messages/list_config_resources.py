"""ListConfigResources (API key 74): which resources have settings (KIP-1142)."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Struct, key=74, versions="0-1", flexible="0+"):
    resource_types: tuple[int, ...] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Struct, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource, "0+")
