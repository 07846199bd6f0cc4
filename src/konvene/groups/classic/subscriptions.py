"""What members of protocol type "consumer" say in their metadata. Other types' metadata is opaque."""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER = "consumer"
LATEST_VERSION = 3


class Subscription(NamedTuple):
    """The topics that a member wants and the partitions that it says it owns."""

    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]


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
    return Subscription(frozenset(said.topics), owned)


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


def subscribes_to(group: ClassicGroup, topic: str) -> bool:
    """Whether a member of the last generation wants the topic; in doubt, yes: then its offsets are kept."""
    if group.protocol_type != CONSUMER or group.state is State.EMPTY:
        return False
    return group.subscribed is None or topic in group.subscribed
