"""What members of protocol type "consumer" say in their metadata. Other types' metadata is opaque."""

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
    """The topics that a member wants and the partitions that it says it owns."""

    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None = None
    user_data: bytes = b""
    """What its assignor says beside that."""


class Assigned(NamedTuple):
    """What a member was given by its group's leader."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    """Partitions by topic."""
    user_data: bytes = b""


def read_subscription(metadata: bytes) -> Subscription | None:
    """Read a member's metadata; None where it is not a subscription. Later versions begin as ours do."""
    if len(metadata) < 2:
        return None
    version = min(int.from_bytes(metadata[:2], "big", signed=True), LATEST_VERSION)
    if version < 0:
        return None
    try:
        said, _ = decode_from(ConsumerProtocolSubscription, version, metadata, 2)
    except CodecError:
        return None
    owned = frozenset((t.topic, p) for t in said.owned_partitions for p in t.partitions)
    return Subscription(frozenset(said.topics), owned, said.rack_id or None, bytes(said.user_data or b""))


def read_assignment(assignment: bytes) -> Assigned | None:
    """Read a member's assignment; None where it is not one. No bytes at all assign nothing."""
    if not assignment:
        return Assigned(())
    if len(assignment) < 2:
        return None
    try:
        said, _ = decode_from(ConsumerProtocolAssignment, _version(assignment), assignment, 2)
    except CodecError:
        return None
    return Assigned(
        tuple((t.topic, tuple(t.partitions)) for t in said.assigned_partitions), bytes(said.user_data or b"")
    )


def write_assignment(
    partitions: Iterable[tuple[str, tuple[int, ...]]], metadata: bytes, user_data: bytes | None = None
) -> bytes:
    """What a member is told to have, in the version of its own metadata."""
    version = _version(metadata)
    told = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=some)
            for topic, some in partitions
        ),
        user_data=user_data,
    )
    return version.to_bytes(2, "big") + encode(told, version)


def _version(data: bytes) -> int:
    return max(0, min(int.from_bytes(data[:2], "big", signed=True), LATEST_VERSION))


def topics_of_generation(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that the members of a generation want; None where that of one of them cannot be read.

    All versions begin as the first one does, so no more is read of any, whatever version it says it is."""
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
