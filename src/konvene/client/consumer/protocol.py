"""Subscriptions and assignments of the classic consumer protocol, encoded as in Kafka's clients.

The coordinator does not decode them. They begin with a 2-byte version; a version that is newer than ours is
decoded as our newest one, as in Kafka's clients, because new fields are appended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from konvene.client.net.cluster import TopicPartition as Partition
from konvene.codec.compile import decode_from, encode
from konvene.codec.errors import Truncated
from konvene.codec.schema import Struct
from konvene.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)

__all__ = [
    "CONSUMER", "Assigned", "Subscription", "read_assignment", "read_subscription", "write_assignment",
    "write_subscription",
]  # fmt: skip

CONSUMER = "consumer"
"""Protocol type of groups of consumers."""

_NEWEST = 3
S = TypeVar("S", bound=Struct)


class Subscription(NamedTuple):
    """The subscribed topics of a member, and the partitions that it owned in the last generation."""

    topics: tuple[str, ...]
    owned: tuple[Partition, ...] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None
    """Not encoded: JoinGroup has a field for it."""
    user_data: bytes | None = None


class Assigned(NamedTuple):
    """Partitions that the leader assigns to a member."""

    partitions: tuple[Partition, ...]
    user_data: bytes | None = None


def write_subscription(value: Subscription, version: int = _NEWEST) -> bytes:
    """Encode a subscription, without the instance id."""
    struct = ConsumerProtocolSubscription(
        topics=tuple(sorted(value.topics)),
        user_data=value.user_data,
        owned_partitions=tuple(
            TopicPartition(topic=t, partitions=p) for t, p in _by_topic(value.owned).items()
        ),
        generation_id=value.generation,
        rack_id=value.rack,
    )
    return version.to_bytes(2, "big") + encode(struct, version)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Decode a subscription. Raises `CodecError`."""
    struct = _read(ConsumerProtocolSubscription, data)
    owned = tuple(Partition(t.topic, p) for t in struct.owned_partitions for p in t.partitions)
    rack = struct.rack_id or None
    return Subscription(
        tuple(struct.topics), owned, struct.generation_id, rack, instance_id, struct.user_data
    )


def write_assignment(value: Assigned, version: int = _NEWEST) -> bytes:
    struct = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolAssignmentTopicPartition(topic=t, partitions=p)
            for t, p in _by_topic(value.partitions).items()
        ),
        user_data=value.user_data,
    )
    return version.to_bytes(2, "big") + encode(struct, version)


def read_assignment(data: bytes) -> Assigned:
    """Decode an assignment; empty bytes are an empty assignment. Raises `CodecError`."""
    if not data:
        return Assigned(())
    struct = _read(ConsumerProtocolAssignment, data)
    rows = (Partition(t.topic, p) for t in struct.assigned_partitions for p in t.partitions)
    return Assigned(tuple(sorted(rows)), struct.user_data)


def _read(cls: type[S], data: bytes) -> S:
    if len(data) < 2:
        raise Truncated(f"{cls.__name__} without a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    return decode_from(cls, max(0, min(version, _NEWEST)), bytes(data), 2)[0]


def _by_topic(partitions: Iterable[Partition]) -> Mapping[str, tuple[int, ...]]:
    grouped: dict[str, tuple[int, ...]] = {}
    for topic, partition in sorted(set(partitions)):
        grouped[topic] = (*grouped.get(topic, ()), partition)
    return grouped
