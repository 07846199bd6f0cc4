"""ShareGroupDescribe (API key 77): the state and the members of share groups (KIP-932)."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, struct, uuid
from konvene.codec.uuid import Uuid


class ShareGroupDescribeRequest(Struct, key=77, versions="1", flexible="0+"):
    group_ids: tuple[str, ...] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class Member(Struct):
    member_id: str = string("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    assignment: Assignment = struct(Assignment, "0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: tuple[Member, ...] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2147483648)


class ShareGroupDescribeResponse(Struct, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")
