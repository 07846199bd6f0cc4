"""Subscription user data of Kafka Streams' classic assignor `stream`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int8, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class TaskId(Struct):
    topic_group_id: int = int32("1-6")
    """Number of the subtopology."""
    partition: int = int32("1-6")
    """Partition number of the task."""


class PartitionToOffsetSum(Struct):
    partition: int = int32("7-9")
    """Partition number of the task."""
    offset_sum: int = int64("7-9")
    """Sum of the task's changelog offsets."""


class TaskOffsetSum(Struct):
    topic_group_id: int = int32("7+")
    """Number of the subtopology."""
    partition: int = int32("10+")
    """Partition number of the task."""
    offset_sum: int = int64("10+")
    """Sum of the task's changelog offsets."""
    named_topology: str | None = string("10+", nullable="10+", default=None)
    """Name of the topology; None if it has none."""
    partition_to_offset_sum: tuple[PartitionToOffsetSum, ...] = array(PartitionToOffsetSum, "7-9")
    """Offset sums, by partition."""


class ClientTag(Struct):
    key: bytes = bytes_("11+")
    """Name of the tag, in bytes."""
    value: bytes = bytes_("11+")
    """Value of the tag, in bytes."""


class SubscriptionInfoData(Struct, versions="1-11"):
    version: int = int32("1+")
    """Version of the format."""
    latest_supported_version: int = int32("3+", default=-1)
    """Highest version that the client supports."""
    process_id: Uuid = uuid("1+")
    """Id of the client's process."""
    prev_tasks: tuple[TaskId, ...] = array(TaskId, "1-6")
    """Active tasks that the thread owned."""
    standby_tasks: tuple[TaskId, ...] = array(TaskId, "1-6")
    """Standby tasks that the client has."""
    user_end_point: bytes = bytes_("2+")
    """Endpoint for interactive queries."""
    task_offset_sums: tuple[TaskOffsetSum, ...] = array(TaskOffsetSum, "7+")
    """Changelog offsets of the client's tasks."""
    unique_field: int = int8("8+")
    """Counter that makes repeated subscriptions differ, to trigger a rebalance."""
    error_code: int = int32("9+")
    """Error that the thread reports; 0 if there is none."""
    client_tags: tuple[ClientTag, ...] = array(ClientTag, "11+")
    """Tags of the client."""
