"""BrokerRegistration (API key 62): registers a broker with the controller.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
DUPLICATE_BROKER_REGISTRATION, INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, uint16, uuid
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


class BrokerRegistrationRequest(Struct, key=62, versions="0-4", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    cluster_id: str = string("0+")
    """Id of the cluster; None if it is not known."""
    incarnation_id: Uuid = uuid("0+")
    """Id of this run of the process."""
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    """Endpoints of the node, by listener."""
    features: tuple[Feature, ...] = array(Feature, "0+")
    """Supported features and their versions."""
    rack: str | None = string("0+", nullable="0+")
    """Rack of the broker; None if it is not configured."""
    is_migrating_zk_broker: bool = boolean("1+")
    """True for a broker that migrates from ZooKeeper."""
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", ignorable=True)
    """Ids of the broker's log directories."""
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)
    """Epoch before a clean shutdown; -1 if there was none."""


class BrokerRegistrationResponse(Struct, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""
