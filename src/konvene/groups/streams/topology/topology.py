"""The topology of a streams group: what its members sent when they joined, as the log keeps it.

It says which topics each subtopology reads, writes and keeps its state in; never how many tasks there are:
that depends on the topics there are, and `configure` finds it out. It is made once, when a member brings it
or the log is read, and everything that is asked of it again and again is worked out then.

Two topologies are the same if Kafka says so: same epoch, same subtopologies by id, and within each the same
lists in the same order. The order of the subtopologies does not count.

Still ugly: where Kafka's answer depends on the order in which it walks a hash table, ours has to walk in that
order (`hash_order`). The partitions of a repartition topic are such an answer, so this is no matter of taste:
topics that Kafka has made must be found right here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

from konvene.errors import Errors
from konvene.messages import streams_group_heartbeat as wire
from konvene.records.streams import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from konvene.shard.errors import GroupError

FEWEST_BUCKETS = 16
_POWERS = tuple(pow(31, n, 1 << 32) for n in range(256))


@dataclass(frozen=True, slots=True)
class Topology:
    """What the log keeps, by subtopology id, sorted; and what follows from it."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    walked: tuple[Subtopology, ...] = field(compare=False, repr=False)
    """The subtopologies in the order in which Kafka walks them."""
    source_topics: tuple[str, ...] = field(compare=False, repr=False)
    """What is read from outside, sorted: all of these have to exist before a task is assigned."""
    required_topics: tuple[str, ...] = field(compare=False, repr=False)
    """What is read and what state is kept in, each once: the topics of the group's metadata hash."""
    readers: Mapping[str, str] = field(compare=False, repr=False)
    """The id of the subtopology that reads a topic, also one for repartitioning."""

    @classmethod
    def from_value(cls, value: StreamsGroupTopologyValue) -> Topology:
        """Of a record's value. Of subtopologies with the same id the last one counts."""
        by_id = {each.subtopology_id: each for each in value.subtopologies}
        walked = tuple(by_id[name] for name in hash_order(by_id))
        return cls(
            value.epoch,
            {name: by_id[name] for name in sorted(by_id)},
            walked,
            tuple(sorted({topic for each in walked for topic in each.source_topics})),
            tuple(dict.fromkeys(topic for each in walked for topic in _required(each))),
            {topic: each.subtopology_id for each in walked for topic in sources(each)},
        )

    @classmethod
    def from_request(cls, sent: wire.Topology) -> Topology:
        """Of a member's request. What Kafka cannot make a topology of is an error of the server there."""
        check_sent(sent)
        return cls.from_value(record_value(sent))

    def is_sent(self, sent: wire.Topology) -> bool:
        """Whether a request says the same. Asked whenever a member joins, so nothing is made for it."""
        mine, theirs = self.subtopologies, sent.subtopologies
        return (
            self.epoch == sent.epoch
            and len(mine) == len(theirs)
            and all(
                each.subtopology_id in mine and _is_sent(mine[each.subtopology_id], each) for each in theirs
            )
        )

    def is_stateful(self, subtopology_id: str) -> bool:
        """Whether its tasks keep state, so that standby and warm-up tasks make sense."""
        return bool(self.subtopologies[subtopology_id].state_changelog_topics)


def check_sent(sent: wire.Topology) -> None:
    """GroupError: the epoch is negative, or an id comes twice."""
    ids = [each.subtopology_id for each in sent.subtopologies]
    if sent.epoch < 0 or len(set(ids)) < len(ids):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)


def _is_sent(mine: Subtopology, sent: wire.Subtopology) -> bool:
    return (
        mine.source_topics == sent.source_topics
        and mine.source_topic_regex == sent.source_topic_regex
        and mine.repartition_sink_topics == sent.repartition_sink_topics
        and _facts(mine.repartition_source_topics) == _facts(sent.repartition_source_topics)
        and _facts(mine.state_changelog_topics) == _facts(sent.state_changelog_topics)
        and _indexes(mine.copartition_groups) == _indexes(sent.copartition_groups)
    )


def _facts(topics: Iterable[TopicInfo | wire.TopicInfo]) -> list[object]:
    return [
        (
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [(row.key, row.value) for row in topic.topic_configs],
        )
        for topic in topics
    ]


def _indexes(groups: Iterable[CopartitionGroup | wire.CopartitionGroup]) -> list[object]:
    return [(each.source_topics, each.source_topic_regex, each.repartition_source_topics) for each in groups]


def sources(subtopology: Subtopology) -> Iterable[str]:
    """All that a subtopology reads, from outside, then repartitioned: they decide how many tasks it has."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def _required(subtopology: Subtopology) -> Iterable[str]:
    yield from sources(subtopology)
    for topic in subtopology.state_changelog_topics:
        yield topic.name


# --- the record ------------------------------------------------------------------------------------


def record_value(sent: wire.Topology) -> StreamsGroupTopologyValue:
    """What the log is to keep of a member's topology: everything, in the member's order."""
    return StreamsGroupTopologyValue(
        epoch=sent.epoch,
        subtopologies=tuple(
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=_topic_infos(each.state_changelog_topics),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=_topic_infos(each.repartition_source_topics),
                copartition_groups=tuple(
                    CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ),
            )
            for each in sent.subtopologies
        ),
    )


def _topic_infos(sent: tuple[wire.TopicInfo, ...]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=tuple(TopicConfig(key=row.key, value=row.value) for row in topic.topic_configs),
        )
        for topic in sent
    )


# --- Kafka's order ---------------------------------------------------------------------------------


def hash_order(names: Collection[str]) -> list[str]:
    """Distinct names in the order in which a Java HashMap gives them back, put into it as they come.

    By bucket, then as they came. The table doubles while it is more than three quarters full. (A bucket with
    more than eight names becomes a tree in Java; ours stays a list.)"""
    if len(names) < 2:
        return list(names)
    buckets = FEWEST_BUCKETS
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))


def _spread(name: str) -> int:
    """Java's hash of a string, its upper half folded into the lower as HashMap does."""
    units: Sequence[int] = name.encode("ascii") if name.isascii() else _units(name)
    hashed = 0
    for start in range(0, len(units), len(_POWERS)):
        part = units[start : start + len(_POWERS)]
        hashed = hashed * 31 ** len(part) + sum(map(mul, reversed(part), _POWERS)) & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _units(name: str) -> list[int]:
    """Java's characters: two for a letter beyond 16 bits."""
    wide = name.encode("utf-16-be", "surrogatepass")
    return [high << 8 | low for high, low in zip(wide[::2], wide[1::2], strict=True)]
