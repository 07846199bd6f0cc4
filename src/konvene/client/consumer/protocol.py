"""What classic consumers tell each other through their group: subscriptions and assignments as values.

The coordinator carries these bytes unread. In front of them stands a version of two bytes; a version that is
newer than ours is read as our newest one, as Kafka's clients do, because new fields come at the end.
"""

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
"""The protocol type of groups whose members speak this."""

_NEWEST = 3
S = TypeVar("S", bound=Struct)


class Subscription(NamedTuple):
    """What a member wants, and what it holds from the last generation."""

    topics: tuple[str, ...]
    owned: tuple[Partition, ...] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None
    """Not part of the bytes: JoinGroup gives it beside them."""
    user_data: bytes | None = None


class Assigned(NamedTuple):
    """What the leader gives a member."""

    partitions: tuple[Partition, ...]
    user_data: bytes | None = None


def write_subscription(value: Subscription, version: int = _NEWEST) -> bytes:
    """The bytes of a subscription. The instance id is not among them."""
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
    """Raises `CodecError` for bytes that are no subscription."""
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
    """Raises `CodecError` for bytes that are no assignment; no bytes at all are an empty one."""
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
