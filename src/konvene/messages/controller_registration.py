"""ControllerRegistration (API key 70): a controller registers with the cluster."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class Listener(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class Feature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class ControllerRegistrationRequest(Struct, key=70, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: Uuid = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    features: tuple[Feature, ...] = array(Feature, "0+")


class ControllerRegistrationResponse(Struct, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
