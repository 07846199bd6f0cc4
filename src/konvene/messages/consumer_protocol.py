"""What classic consumers tell each other through JoinGroup and SyncGroup (protocol type "consumer")."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string("1+")
    partitions: tuple[int, ...] = array(int32, "1+")


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    topics: tuple[str, ...] = array(string, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    owned_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    assigned_partitions: tuple[ConsumerProtocolAssignmentTopicPartition, ...] = array(
        ConsumerProtocolAssignmentTopicPartition, "0+"
    )
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
