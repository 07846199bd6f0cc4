"""What members of the classic protocol's assignor `stream` say in the user data of their subscription."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class TaskId(Struct):
    topic_group_id: int = int32("1-6")
    partition: int = int32("1-6")


class PartitionToOffsetSum(Struct):
    partition: int = int32("7-9")
    offset_sum: int = int64("7-9")


class TaskOffsetSum(Struct):
    topic_group_id: int = int32("7+")
    partition: int = int32("10+")
    offset_sum: int = int64("10+")
    named_topology: str | None = string("10+", nullable="10+", default=None)
    partition_to_offset_sum: tuple[PartitionToOffsetSum, ...] = array(PartitionToOffsetSum, "7-9")


class ClientTag(Struct):
    key: bytes = bytes_("11+")
    value: bytes = bytes_("11+")


class SubscriptionInfoData(Struct, versions="1-11"):
    version: int = int32("1+")
    latest_supported_version: int = int32("3+", default=-1)
    process_id: Uuid = uuid("1+")
    prev_tasks: tuple[TaskId, ...] = array(TaskId, "1-6")
    standby_tasks: tuple[TaskId, ...] = array(TaskId, "1-6")
    user_end_point: bytes = bytes_("2+")
    task_offset_sums: tuple[TaskOffsetSum, ...] = array(TaskOffsetSum, "7+")
    unique_field: int = int8("8+")
    error_code: int = int32("9+")
    client_tags: tuple[ClientTag, ...] = array(ClientTag, "11+")
