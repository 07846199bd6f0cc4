"""BrokerHeartbeat (API key 63): renews a broker's session with the controller.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class BrokerHeartbeatRequest(Struct, key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""
    current_metadata_offset: int = int64("0+")
    """Highest metadata offset that the broker has applied."""
    want_fence: bool = boolean("0+")
    """True if the broker wants to be fenced."""
    want_shut_down: bool = boolean("0+")
    """True if the broker wants to shut down."""
    offline_log_dirs: tuple[Uuid, ...] = array(uuid, "1+", tag=0)
    """Ids of the log directories that have failed."""
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)
    """Ids of the log directories that take no new partitions."""


class BrokerHeartbeatResponse(Struct, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    is_caught_up: bool = boolean("0+")
    """True if the broker has caught up with the metadata log."""
    is_fenced: bool = boolean("0+", default=True)
    """True if the broker is fenced."""
    should_shut_down: bool = boolean("0+")
    """True if the broker may shut down now."""
