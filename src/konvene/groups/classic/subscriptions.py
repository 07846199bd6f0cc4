"""Encode and decode the subscriptions and assignments of members of protocol type "consumer".

Those of other protocol types are opaque to the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from konvene.codec.compile import decode_from, encode
from konvene.codec.errors import CodecError
from konvene.groups.classic.group import ClassicGroup
from konvene.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

CONSUMER = "consumer"
STREAM = "stream"
"""Kafka Streams' assignor."""
LATEST_VERSION = 3


class Subscription(NamedTuple):
    """A member's decoded JoinGroup metadata: its topics, and the partitions that it owns."""

    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None = None
    user_data: bytes = b""
    """Data of the member's assignor."""


class Assigned(NamedTuple):
    """A member's decoded assignment, which the leader of the group computed."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    """Partitions by topic."""
    user_data: bytes = b""


def read_subscription(metadata: bytes) -> Subscription | None:
    """Decode a member's JoinGroup metadata; None if it is malformed.

    Versions later than `LATEST_VERSION` are decoded as that one, as their additional fields come last.
    """
    if len(metadata) < 2:
        return None
    version = min(int.from_bytes(metadata[:2], "big", signed=True), LATEST_VERSION)
    if version < 0:
        return None
    try:
        decoded, _ = decode_from(ConsumerProtocolSubscription, version, metadata, 2)
    except CodecError:
        return None
    owned = frozenset((t.topic, p) for t in decoded.owned_partitions for p in t.partitions)
    return Subscription(
        frozenset(decoded.topics), owned, decoded.rack_id or None, bytes(decoded.user_data or b"")
    )


def read_assignment(assignment: bytes) -> Assigned | None:
    """Decode a member's assignment; None if it is malformed. Zero bytes are an empty assignment."""
    if not assignment:
        return Assigned(())
    if len(assignment) < 2:
        return None
    try:
        decoded, _ = decode_from(ConsumerProtocolAssignment, _version(assignment), assignment, 2)
    except CodecError:
        return None
    return Assigned(
        tuple((t.topic, tuple(t.partitions)) for t in decoded.assigned_partitions),
        bytes(decoded.user_data or b""),
    )


def write_assignment(
    partitions: Iterable[tuple[str, tuple[int, ...]]], metadata: bytes, user_data: bytes | None = None
) -> bytes:
    """Encode a member's assignment. `metadata`: its JoinGroup metadata, whose version is used."""
    version = _version(metadata)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in partitions
        ),
        user_data=user_data,
    )
    return version.to_bytes(2, "big") + encode(assignment, version)


def _version(data: bytes) -> int:
    return max(0, min(int.from_bytes(data[:2], "big", signed=True), LATEST_VERSION))


def topics_of_generation(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that the members of a generation subscribe to; None if they are unknown.

    They are unknown unless the protocol type is "consumer" and all subscriptions can be decoded. Only the
    fields of version 0 are decoded, with which every version begins.
    """
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol)
        if len(metadata) < 2:
            return None
        try:
            topics.update(decode_from(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
        except CodecError:
            return None
    return frozenset(topics)
