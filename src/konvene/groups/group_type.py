"""Groups of any kind: what is asked of them alike, whatever protocol their members speak."""

from __future__ import annotations

from typing import Final

from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import session_key
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.classic.subscriptions import CONSUMER
from konvene.groups.consumer import log as consumer_log
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.share import log as share_log
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams import log as streams_log
from konvene.groups.streams.decision import delay_key, refresh_key
from konvene.groups.streams.group import StreamsGroup
from konvene.records.coordinator import Record
from konvene.shard.contract import Disarm

Group = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup

TYPES: Final[dict[type, str]] = {
    ClassicGroup: "classic",
    ConsumerGroup: "consumer",
    StreamsGroup: "streams",
    ShareGroup: "share",
}
"""Kafka's names of the kinds, as ListGroups has them."""

STREAMS, SHARE = "streams", "share"
"""The protocol types of streams and share groups."""


def is_empty(group: Group) -> bool:
    """Whether nobody is in it, or on the way into it."""
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY
    return group.is_empty


def protocol_type(group: Group) -> str:
    """What its members speak among themselves; empty where nobody knows."""
    if isinstance(group, ClassicGroup):
        return group.protocol_type or ""
    if isinstance(group, ShareGroup):
        return SHARE
    return CONSUMER if isinstance(group, ConsumerGroup) else STREAMS


def subscribes_to(group: Group, topic: str) -> bool:
    """Whether a member wants the topic; where that cannot be told, yes: then its offsets are kept."""
    if isinstance(group, ConsumerGroup):
        return topic in group.subscribers or topic in group.topics
    if isinstance(group, StreamsGroup):
        return group.reads(topic)
    if isinstance(group, ShareGroup):
        return topic in group.subscribers
    if group.protocol_type != CONSUMER or group.state is ClassicState.EMPTY:
        return False
    return group.subscribed is None or topic in group.subscribed


def tombstones(group: Group) -> list[Record]:
    """All that is kept of the group goes; its offsets are another matter."""
    if isinstance(group, ConsumerGroup):
        return consumer_log.group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return streams_log.group_tombstones(group)
    if isinstance(group, ShareGroup):
        return share_log.group_tombstones(group)
    return [classic_log.tombstone(group.group_id)]


def timers(group: Group) -> list[Disarm]:
    """What runs for a group that is empty, and for nobody once it is gone."""
    if isinstance(group, ClassicGroup):
        return [Disarm(session_key(group.group_id, member)) for member in sorted(group.pending_joins)]
    if not isinstance(group, StreamsGroup):
        return []
    return [Disarm(delay_key(group.group_id)), Disarm(refresh_key(group.group_id))]
