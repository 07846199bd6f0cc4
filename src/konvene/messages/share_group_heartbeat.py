"""ShareGroupHeartbeat (API key 76): a member of a share group (KIP-932) joins, stays or leaves."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, struct, uuid
from konvene.codec.uuid import Uuid


class ShareGroupHeartbeatRequest(Struct, key=76, versions="1", flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = array(string, "0+", nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class ShareGroupHeartbeatResponse(Struct, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)
