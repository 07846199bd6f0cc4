"""The topics that the members of a group subscribe to, and their hash, computed independently of the group.

`READERS` has a function for each class of group. This module has no `KINDS`, and no invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.hashes import metadata_hash, topic_hash
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import Group
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.expressions import expand_expressions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.shard.image import Topics


def subscribed_topics(group: Group, candidates: Iterable[str]) -> set[str]:
    """Return the topics that members subscribe to; unreadable subscriptions are ignored.

    `candidates` are the topics in question, for topologies whose expressions are not resolved yet."""
    return READERS[type(group)](group, candidates)


def _of_classic_group(group: ClassicGroup, candidates: Iterable[str]) -> set[str]:
    topics: set[str] = set()
    for member in group.members.values():
        metadata = dict(member.protocols).get(group.protocol or "", b"")
        try:
            topics.update(decode_from(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
        except CodecError:
            continue
    return topics


def _of_consumer_group(group: ConsumerGroup, candidates: Iterable[str]) -> set[str]:
    topics: set[str] = set()
    for member in group.members.values():
        topics |= member.topics
        if member.regex in group.regexes:
            topics |= group.regexes[member.regex].topics
    return topics


def _of_streams_group(group: StreamsGroup, candidates: Iterable[str]) -> set[str]:
    if not group.members or group.topology is None:
        return set()
    resolved = group.soft.resolved
    if resolved is None:
        return {topic for topic in candidates if group.reader_of(topic) is not None}
    return set(expand_expressions(group.topology, resolved.matches).readers)


def _of_share_group(group: ShareGroup, candidates: Iterable[str]) -> set[str]:
    return set(group.subscribers)


READERS: Final[dict[type, Callable[[Any, Iterable[str]], set[str]]]] = {
    ClassicGroup: _of_classic_group,
    ConsumerGroup: _of_consumer_group,
    StreamsGroup: _of_streams_group,
    ShareGroup: _of_share_group,
}
"""The function that returns the subscribed topics of a group, by the group's class."""


def expected_metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return the metadata hash of the topics with these names, of those that exist."""
    hashes = {}
    for name in names:
        topic = topics.by_name.get(name)
        if topic is not None:
            hashes[name] = topic_hash(name, topic.id, topic.racks or ((),) * topic.partitions)
    return metadata_hash(hashes)
