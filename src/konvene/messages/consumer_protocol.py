"""The consumer protocol: subscriptions and assignments of classic consumers, in the bytes of JoinGroup and
SyncGroup."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string("1+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "1+")
    """Partition numbers."""


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    topics: tuple[str, ...] = array(string, "0+")
    """Names of the subscribed topics."""
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    """Data of the assignor; None if it has none."""
    owned_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "1+", ignorable=True)
    """Partitions that the member owns before the rebalance."""
    generation_id: int = int32("2+", default=-1, ignorable=True)
    """Generation in which the member owned the partitions; -1 if unknown."""
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    """Rack of the client; None or empty if it is not configured."""


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partition numbers."""


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    assigned_partitions: tuple[ConsumerProtocolAssignmentTopicPartition, ...] = array(
        ConsumerProtocolAssignmentTopicPartition, "0+"
    )
    """Partitions that the leader assigned to the member."""
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    """Data of the assignor; None if it has none."""
