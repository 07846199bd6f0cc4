"""BrokerHeartbeat (API key 63): a broker tells the controller that it lives."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class BrokerHeartbeatRequest(Struct, key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: tuple[Uuid, ...] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Struct, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
