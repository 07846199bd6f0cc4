"""Topologies of Kafka Streams applications in the notation of conversations.

    topology NAME ID:WORD,WORD,... ID:WORD,...        defines NAME for the rest of the conversation

    orders      a source topic                  ~own.*          an expression for source topics
    >own-r      a repartition sink              <own-r          a repartition source; <own-r*4 of 4 partitions
    =own-c      a changelog                     +orders+own-r   a copartition group; #3 is an index

Suffixes of a repartition source or a changelog: `*partitions*replication factor*name=value*name=value`.
NAME@7 is a topology at epoch 7; epochs begin at 1. Topics named `own...` belong to this conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.differential.language import text

from konvene.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)

KNOWN: dict[str, tuple[str, ...]] = {
    "map": ("0:orders",),
    "two": ("0:orders", "1:audit"),
    "count": ("0:orders,=own-count",),
    "chain": ("0:orders,>own-r", "1:<own-r,=own-count"),
    "none": (),
}
"""Predefined topologies, by name."""

FIRST_EPOCH = 1
Name = Callable[[str], str]


def topology(spelled: Sequence[str], epoch: int, name: Name) -> Topology:
    """Build a heartbeat's topology; `name` maps a topic of the notation to its real name."""
    return Topology(epoch=epoch, subtopologies=tuple(_subtopology(one, name) for one in spelled))


def internal_topics(spelled: Sequence[str]) -> list[str]:
    """Return the internal_topics topics of a topology, in the order of their definition."""
    words = [word for one in spelled for word in one.partition(":")[2].split(",")]
    return list(dict.fromkeys(word[1:].partition("*")[0] for word in words if word[:1] in ("<", "=")))


def _subtopology(spelled: str, name: Name) -> Subtopology:
    subtopology_id, _, listed = spelled.partition(":")
    words = [word for word in listed.split(",") if word]
    sources = [word for word in words if word[0] not in "~><=+"]
    repartitioned = [word[1:] for word in words if word[0] == "<"]
    return Subtopology(
        subtopology_id=text(subtopology_id),
        source_topics=tuple(name(text(word)) for word in sources),
        source_topic_regex=tuple(text(word[1:]) for word in words if word[0] == "~"),
        state_changelog_topics=tuple(_topic_info(word[1:], name) for word in words if word[0] == "="),
        repartition_sink_topics=tuple(name(text(word[1:])) for word in words if word[0] == ">"),
        repartition_source_topics=tuple(_topic_info(word, name) for word in repartitioned),
        copartition_groups=tuple(
            _copartition_group(word[1:].split("+"), sources, [r.partition("*")[0] for r in repartitioned])
            for word in words
            if word[0] == "+"
        ),
    )


def _topic_info(word: str, name: Name) -> TopicInfo:
    topic, partitions, factor, *configs = (*word.split("*"), *("0", "0")[word.count("*") :])
    named = (config.partition("=") for config in configs)
    return TopicInfo(
        name=name(text(topic)),
        partitions=int(partitions),
        replication_factor=int(factor),
        topic_configs=tuple(KeyValue(key=key, value=value) for key, _, value in named),
    )


def _copartition_group(topics: list[str], sources: list[str], repartitioned: list[str]) -> CopartitionGroup:
    return CopartitionGroup(
        source_topics=tuple(
            int(t[1:]) if t[0] == "#" else sources.index(t) for t in topics if t[0] == "#" or t in sources
        ),
        repartition_source_topics=tuple(repartitioned.index(t) for t in topics if t in repartitioned),
    )
