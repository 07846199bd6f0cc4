"""ControllerRegistration (API key 70): registers a controller with the cluster.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
STALE_CONTROLLER_EPOCH, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class Listener(Struct):
    name: str = string("0+")
    """Name of the listener."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""
    security_protocol: int = int16("0+")
    """Number of the security protocol."""


class Feature(Struct):
    name: str = string("0+")
    """Name of the feature."""
    min_supported_version: int = int16("0+")
    """Lowest supported version."""
    max_supported_version: int = int16("0+")
    """Highest supported version."""


class ControllerRegistrationRequest(Struct, key=70, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    """Id of the controller; -1 if there is none."""
    incarnation_id: Uuid = uuid("0+")
    """Id of this run of the process."""
    zk_migration_ready: bool = boolean("0+")
    """True if the node supports the migration from ZooKeeper."""
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    """Endpoints of the node, by listener."""
    features: tuple[Feature, ...] = array(Feature, "0+")
    """Supported features and their versions."""


class ControllerRegistrationResponse(Struct, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
