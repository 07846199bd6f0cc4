"""The topology of a streams group: what its members sent when they joined, as the log keeps it.

It lists the topics that each subtopology reads, writes and keeps its state in, but not the number of tasks,
which depends on the existing topics (`configure`). A topology is built once, when a member sends it or the
log is loaded, together with the indexes that are derived from it.

Two topologies are equal as in Kafka: same epoch, same subtopologies by id, and within each the same
lists in the same order. The order of the subtopologies does not count.

Some results of Kafka depend on the iteration order of a hash table, such as the partition counts of
repartition topics. Since topics that Kafka created have to be accepted here, the same order is used
(`java_hash_map`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from konvene.errors import Errors
from konvene.groups.java_hash_map import hash_map_order
from konvene.messages import streams_group_heartbeat as wire
from konvene.records.streams import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from konvene.shard.errors import GroupError


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology: its epoch, its subtopologies sorted by id, and indexes derived from them."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    in_hash_order: tuple[Subtopology, ...] = field(compare=False, repr=False)
    """The subtopologies in the order in which Kafka iterates over them."""
    source_topics: tuple[str, ...] = field(compare=False, repr=False)
    """The source topics, sorted: all of them have to exist before a task is assigned."""
    required_topics: tuple[str, ...] = field(compare=False, repr=False)
    """Source and changelog topics without duplicates: the topics of the group's metadata hash."""
    readers: Mapping[str, str] = field(compare=False, repr=False)
    """The id of the subtopology that reads a source or repartition topic."""

    @classmethod
    def from_value(cls, value: StreamsGroupTopologyValue) -> Topology:
        """Build a topology from a record's value. Of subtopologies with the same id the last one is used."""
        by_id = {each.subtopology_id: each for each in value.subtopologies}
        ordered = tuple(by_id[name] for name in hash_map_order(by_id))
        return cls(
            value.epoch,
            {name: by_id[name] for name in sorted(by_id)},
            ordered,
            tuple(sorted({topic for each in ordered for topic in each.source_topics})),
            tuple(dict.fromkeys(topic for each in ordered for topic in _required(each))),
            {topic: each.subtopology_id for each in ordered for topic in sources(each)},
        )

    @classmethod
    def from_request(cls, sent: wire.Topology) -> Topology:
        """Build a topology from a member's request. Raises `GroupError` as `validate_request`."""
        validate_request(sent)
        return cls.from_value(record_value(sent))

    def equals_request(self, sent: wire.Topology) -> bool:
        """Return whether a request has the same topology. Called for every join, so it allocates little."""
        mine, theirs = self.subtopologies, sent.subtopologies
        return (
            self.epoch == sent.epoch
            and len(mine) == len(theirs)
            and all(
                each.subtopology_id in mine and _equals(mine[each.subtopology_id], each) for each in theirs
            )
        )

    def is_stateful(self, subtopology_id: str) -> bool:
        """Return whether the subtopology's tasks keep state, so that standby and warm-up tasks make sense."""
        return bool(self.subtopologies[subtopology_id].state_changelog_topics)


def validate_request(sent: wire.Topology) -> None:
    """Raise UNKNOWN_SERVER_ERROR, as Kafka does, if the epoch is negative or a subtopology id is repeated."""
    ids = [each.subtopology_id for each in sent.subtopologies]
    if sent.epoch < 0 or len(set(ids)) < len(ids):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)


def _equals(mine: Subtopology, sent: wire.Subtopology) -> bool:
    return (
        mine.source_topics == sent.source_topics
        and mine.source_topic_regex == sent.source_topic_regex
        and mine.repartition_sink_topics == sent.repartition_sink_topics
        and _topic_fields(mine.repartition_source_topics) == _topic_fields(sent.repartition_source_topics)
        and _topic_fields(mine.state_changelog_topics) == _topic_fields(sent.state_changelog_topics)
        and _indexes(mine.copartition_groups) == _indexes(sent.copartition_groups)
    )


def _topic_fields(topics: Iterable[TopicInfo | wire.TopicInfo]) -> list[object]:
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
    """Yield all topics that a subtopology reads, source topics first; they determine its number of tasks."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def _required(subtopology: Subtopology) -> Iterable[str]:
    yield from sources(subtopology)
    for topic in subtopology.state_changelog_topics:
        yield topic.name


# --- the record ------------------------------------------------------------------------------------


def record_value(sent: wire.Topology) -> StreamsGroupTopologyValue:
    """Return the topology that a member sent as a record's value, with all fields, in the member's order."""
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
