"""Configure a topology with the existing topics: find its tasks, its internal topics, and what is missing.

The steps are those of Kafka's InternalTopicManager; the first that fails decides the status of the group.

    step                                                          fails with
    1. every source topic exists, and every expression matches
       a topic                                                    MISSING_SOURCE_TOPICS
    2. repartition topics: as the topology specifies, or as many
       partitions as the largest source of their writer           (the topology is rejected)
    3. copartitioned topics have as many partitions               INCORRECTLY_PARTITIONED_TOPICS
    4. changelogs: as many as the largest source                  (the topology is rejected)
    5. existing internal topics have that many                    INCORRECTLY_PARTITIONED_TOPICS
    6. all internal topics exist                                  MISSING_INTERNAL_TOPICS: they are to be
       created

A subtopology has as many tasks as its largest source has partitions. Only step 6 fails with the tasks known.

`mode` is the setting `konvene.streams.mode`. With `kafka` every result is Apache Kafka 4.4's; with `kip`
these differ:

- Kafka takes the sources whose partition counts are known when it visits a subtopology, and the order of
  visits depends on the hash of the subtopologies' ids; a repartition topic may end up with fewer partitions
  than a source of its writer has. `kip` takes the largest of all sources, whatever the order.
- If all topics of a copartition group are repartition topics, Kafka compares them with those with a fixed
  number of partitions anywhere in the topology. `kip` compares within the group.
- Kafka names three topics, in the order of a hash table. `kip` names all, sorted.

Expressions of a topology are replaced by the topics that they match (`expressions`) before the first step, in
either mode: with `kafka` a new topology may have none, but a group may already have some.

This module never creates, alters or reads a topic: it is given partition counts. The configs of existing
topics do not matter to the result; `config_warnings` compares them for the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from konvene.errors import Errors
from konvene.groups.java_hash_map import hash_map_order
from konvene.groups.streams.topology.expressions import Matches, expand_expressions, unmatched
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages import streams_group_describe as described
from konvene.records.streams import Subtopology, TopicConfig, TopicInfo
from konvene.shard.errors import GroupError

KAFKA, KIP = "kafka", "kip"
MAX_TOPICS_NAMED = 3

PartitionCounts = Callable[[str], int | None]
"""The partition count of a topic; None if the topic does not exist."""


class Status(IntEnum):
    """The status codes of a StreamsGroupHeartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class ConfigurationFailure(NamedTuple):
    """The status of a group that is not ready, and its detail: a message with the topics concerned."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic that a topology requires, with its partition count and configs."""

    name: str
    partitions: int
    replication_factor: int
    """0 for the broker's default."""
    topic_configs: tuple[TopicConfig, ...] = ()

    @property
    def configs(self) -> dict[str, str]:
        return {row.key: row.value for row in self.topic_configs}


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """The result of configuring a topology with the existing topics (`ConfiguredTopology` in Kafka)."""

    epoch: int
    topics: tuple[str, ...]
    """The topics that the group's metadata hash covers, as far as they exist."""
    tasks: Mapping[str, int]
    """Number of tasks by subtopology id, sorted. Empty if no internal topic could be decided."""
    internal_topics: Mapping[str, InternalTopic]
    """All repartition and changelog topics by name, existing or not; empty if `tasks` is."""
    missing: Mapping[str, InternalTopic]
    """The internal topics that have to be created."""
    failure: ConfigurationFailure | None = None
    topology: Topology | None = None
    """The topology with its expressions replaced by topic names."""
    is_resolved: bool = True
    """False while it is unknown what the expressions match; all else is empty then."""

    @property
    def is_ready(self) -> bool:
        """Return whether tasks may be assigned."""
        return self.failure is None and self.is_resolved


UNRESOLVED = ConfiguredTopology(-1, (), {}, {}, {}, is_resolved=False)
"""The value while the expressions of a topology are not resolved."""


class _PartitionMismatch(Exception):
    """Error: existing topics have incompatible partition counts."""


def configure(
    topology: Topology,
    partitions_of: PartitionCounts | Mapping[str, int | None],
    mode: str = KAFKA,
    matches: Matches | None = None,
) -> ConfiguredTopology:
    """Return the topology, configured with the existing topics.

    `partitions_of`: partition counts of existing topics. `matches`: existing topics that each expression
    matches. Raises STREAMS_INVALID_TOPOLOGY if partition counts cannot be decided whatever topics exist, and
    UNKNOWN_SERVER_ERROR (without a message, as Kafka) if the topology is malformed."""
    known = partitions_of if callable(partitions_of) else partitions_of.get
    unread = unmatched(topology, matches or {})
    topology = expand_expressions(topology, matches or {})
    groups = _copartition_groups(topology, mode)
    absent = [topic for topic in topology.source_topics if known(topic) is None]
    if absent or unread:
        detail = _missing_sources(absent, unread, mode)
        return _failed(topology, ConfigurationFailure(Status.MISSING_SOURCE_TOPICS, detail))
    try:
        decided = _repartition_counts(topology, known, mode)
        _enforce_copartitioning(topology, groups, decided, known, mode)
        _add_changelogs(topology, decided, known)
        tasks = {
            name: _checked(_largest_source(each, decided, known))
            for name, each in topology.subtopologies.items()
        }
        internal = _internal_topics(topology, decided)
        _check_existing(topology, internal, known, mode)
    except _PartitionMismatch as mismatch:
        return _failed(topology, ConfigurationFailure(Status.INCORRECTLY_PARTITIONED_TOPICS, str(mismatch)))
    missing = {topic: internal[topic] for topic in _missing(topology, internal, known, mode)}
    failure = None
    if missing:
        detail = f"Internal topics are missing: {_summary(missing, mode)}"
        failure = ConfigurationFailure(Status.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(
        topology.epoch, topology.required_topics, tasks, internal, missing, failure, topology
    )


def _failed(topology: Topology, failure: ConfigurationFailure) -> ConfiguredTopology:
    return ConfiguredTopology(topology.epoch, topology.required_topics, {}, {}, {}, failure, topology)


def _missing_sources(absent: Collection[str], unread: Collection[str], mode: str) -> str:
    """Return the status detail that names missing source topics, and expressions that match no topic."""
    sentences = [f"Source topics {_summary(absent, mode)} are missing."] if absent else []
    if unread:
        sentences.append(f"No topics match the source topic expressions {_summary(unread, mode)}.")
    return " ".join(sentences)


def _summary(topics: Collection[str], mode: str) -> str:
    shown = list(topics)
    if mode == KIP or len(shown) <= MAX_TOPICS_NAMED:
        return ", ".join(shown)
    return f"{', '.join(shown[:MAX_TOPICS_NAMED])} and {len(shown) - MAX_TOPICS_NAMED} additional topics"


def _visited(topology: Topology, mode: str) -> Collection[Subtopology]:
    return topology.subtopologies.values() if mode == KIP else topology.in_hash_order


def _count(topic: str, decided: Mapping[str, int], known: PartitionCounts) -> int:
    """Return the partition count of an existing topic, or the decided one of a topic to be created."""
    found = known(topic)
    return decided[topic] if found is None else found


def _largest_source(subtopology: Subtopology, decided: Mapping[str, int], known: PartitionCounts) -> int:
    """Return the largest partition count of a subtopology's source and repartition source topics."""
    return max([_count(topic, decided, known) for topic in sources(subtopology)])


def _checked(count: int) -> int:
    """Return a partition count. Raises UNKNOWN_SERVER_ERROR, as Kafka, if it is not positive."""
    if count < 1:
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    return count


# --- 2. repartition topics -------------------------------------------------------------------------


def _repartition_counts(topology: Topology, known: PartitionCounts, mode: str) -> dict[str, int]:
    """Return the partition counts of all repartition topics, before copartitioning is enforced."""
    visited = _visited(topology, mode)
    decided = {
        topic.name: topic.partitions
        for each in visited
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    if any(each.repartition_sink_topics for each in visited):
        decide = _largest_first if mode == KIP else _in_passes
        decide(tuple(visited), decided, known)
    if not all(topic in decided for each in visited for topic in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the "
            "topology that cannot be resolved."
        )
    if not all(topic.name in decided for each in visited for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    return decided


def _invalid(message: str) -> GroupError:
    return GroupError(Errors.STREAMS_INVALID_TOPOLOGY, message)


def _largest_known(each: Subtopology, decided: Mapping[str, int], known: PartitionCounts) -> int | None:
    """Return the largest partition count of a subtopology's sources that is known or decided, if any."""
    found = [known(topic) for topic in each.source_topics]
    found += [decided.get(topic.name) for topic in each.repartition_source_topics]
    return max([count for count in found if count is not None], default=None)


def _in_passes(visited: tuple[Subtopology, ...], decided: dict[str, int], known: PartitionCounts) -> None:
    """Decide the counts of repartition topics as Kafka: in repeated passes over the subtopologies.

    A subtopology decides for all its sinks as soon as the count of any of its sources is known. A visit is
    (pass, index of the subtopology); only visits that can have an effect are queued."""
    readers = _readers(visited)
    visits = [(0, at) for at, each in enumerate(visited) if _largest_known(each, decided, known) is not None]
    queued = {at for _, at in visits}
    while visits:
        pass_number, at = heappop(visits)
        each = visited[at]
        open_sinks = [topic for topic in each.repartition_sink_topics if topic not in decided]
        if not open_sinks:
            continue
        count = _largest_known(each, decided, known)
        assert count is not None
        for topic in open_sinks:
            decided[topic] = count
            for reader in readers.get(topic, ()):
                if reader not in queued:
                    queued.add(reader)
                    heappush(visits, (pass_number if reader > at else pass_number + 1, reader))


def _largest_first(visited: tuple[Subtopology, ...], decided: dict[str, int], known: PartitionCounts) -> None:
    """Decide each repartition topic's count as the largest of all sources from which it can be reached.

    Subtopologies are visited by descending counts, so the first count that reaches a topic is the largest.
    """
    readers = _readers(visited)
    reached: list[tuple[int, int]] = []
    for at, each in enumerate(visited):
        count = _largest_known(each, decided, known)
        if count is not None:
            reached.append((-count, at))
    heapify(reached)
    while reached:
        negative, at = heappop(reached)
        for topic in visited[at].repartition_sink_topics:
            if topic not in decided:
                decided[topic] = -negative
                for reader in readers.get(topic, ()):
                    heappush(reached, (negative, reader))


def _readers(visited: tuple[Subtopology, ...]) -> dict[str, list[int]]:
    """Return by repartition topic the indexes of the subtopologies that read it."""
    found: dict[str, list[int]] = {}
    for at, each in enumerate(visited):
        for topic in each.repartition_source_topics:
            found.setdefault(topic.name, []).append(at)
    return found


# --- 3. copartitioned topics -----------------------------------------------------------------------


def _copartition_groups(topology: Topology, mode: str) -> list[list[str]]:
    """Return the topic names of each copartition group."""
    return [
        _select(each.source_topics, group.source_topics)
        + _select([topic.name for topic in each.repartition_source_topics], group.repartition_source_topics)
        for each in _visited(topology, mode)
        for group in each.copartition_groups
    ]


def _select(names: Collection[str], indexes: Iterable[int]) -> list[str]:
    available = list(names)
    requested = list(indexes)
    if not all(0 <= index < len(available) for index in requested):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    return [available[index] for index in requested]


def _enforce_copartitioning(
    topology: Topology, groups: list[list[str]], decided: dict[str, int], known: PartitionCounts, mode: str
) -> None:
    """Set the repartition topics of each copartition group to the partition count of its other topics."""
    if not groups:
        return
    topics = [topic for each in topology.in_hash_order for topic in each.repartition_source_topics]
    fixed = {topic.name for topic in topics if topic.partitions}
    internal = {topic.name for topic in topics}
    for group in groups:
        if not group:
            continue
        inner = {topic: _count(topic, decided, known) for topic in group if topic in internal}
        outer = {topic: _count(topic, decided, known) for topic in group if topic not in internal}
        if outer:
            count = _common_count(outer, outer)
        else:
            binding = fixed & inner.keys() if mode == KIP else fixed
            bound = {topic: _count(topic, decided, known) for topic in sorted(binding)}
            count = _common_count(bound, inner) if bound else max(inner.values())
        for topic in sorted(inner) if mode == KIP else hash_map_order(inner):
            if topic in fixed and inner[topic] != count:
                raise _PartitionMismatch(
                    f"Number of partitions [{inner[topic]}] of repartition topic [{topic}] doesn't match "
                    f"number of partitions [{count}] of the source topic."
                )
        decided.update(dict.fromkeys(inner, count))


def _common_count(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    """Return the partition count that all topics have. Raises `_PartitionMismatch` if they differ.

    `named`: the topics, with their counts, that the message of the error names.
    """
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic}={named[topic]}" for topic in sorted(named))
        raise _PartitionMismatch(
            f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        )
    return next(iter(counts.values()))


# --- 4. changelogs ---------------------------------------------------------------------------------


def _add_changelogs(topology: Topology, decided: dict[str, int], known: PartitionCounts) -> None:
    """Decide the partition counts of changelogs: the number of tasks of their subtopology.

    Raises `GroupError` for a subtopology without sources.
    """
    found: dict[str, int] = {}
    for each in topology.in_hash_order:
        if not each.source_topics and not each.repartition_source_topics:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        if each.state_changelog_topics:
            count = _largest_source(each, decided, known)
            found.update((topic.name, count) for topic in each.state_changelog_topics)
    decided.update(found)


# --- 5. and 6. existing topics ---------------------------------------------------------------------


def _internal_topics(topology: Topology, decided: Mapping[str, int]) -> dict[str, InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for each in topology.subtopologies.values():
        for topics in (each.repartition_source_topics, each.state_changelog_topics):
            if len(topics) > 1 and len({topic.name for topic in topics}) < len(topics):
                raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
            for topic in topics:
                found[topic.name] = _internal_topic(topic, decided)
    return found


def _internal_topic(topic: TopicInfo, decided: Mapping[str, int]) -> InternalTopic:
    configs = topic.topic_configs
    if len(configs) > 1 and len({row.key for row in configs}) < len(configs):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    count = _checked(topic.partitions or decided[topic.name])
    return InternalTopic(topic.name, count, topic.replication_factor, configs)


def _check_existing(
    topology: Topology, internal: Mapping[str, InternalTopic], known: PartitionCounts, mode: str
) -> None:
    """Raise `_PartitionMismatch` if an existing internal topic has another partition count than required."""
    wrong = {name for name, topic in internal.items() if known(name) not in (None, topic.partitions)}
    if not wrong:
        return
    order = sorted(wrong) if mode == KIP else hash_map_order(topology.required_topics)
    name = next(name for name in order if name in wrong)
    raise _PartitionMismatch(
        f"Existing topic {name} has different number of partitions: expected {internal[name].partitions}, "
        f"found {known(name)}"
    )


def _missing(
    topology: Topology, internal: Mapping[str, InternalTopic], known: PartitionCounts, mode: str
) -> list[str]:
    """Return the internal topics that do not exist, in the order in which messages name them."""
    absent = {name for name in internal if known(name) is None}
    if not absent:
        return []
    if mode == KIP:
        return sorted(absent)
    put = dict.fromkeys(
        name
        for each in topology.subtopologies.values()
        for topics in (each.repartition_source_topics, each.state_changelog_topics)
        for name in hash_map_order([topic.name for topic in topics])
    )
    return [name for name in hash_map_order(put) if name in absent]


# --- warnings and descriptions ---------------------------------------------------------------------


class ExistingTopic(NamedTuple):
    """The replication factor and configs of an existing internal topic."""

    replication_factor: int
    configs: Mapping[str, str]


def config_warnings(configured: ConfiguredTopology, existing: Mapping[str, ExistingTopic]) -> tuple[str, ...]:
    """Return warnings about existing internal topics with wrong replication factors or configs."""
    found = []
    for name in sorted(configured.internal_topics.keys() & existing.keys()):
        wanted, actual = configured.internal_topics[name], existing[name]
        if wanted.replication_factor > 0 and wanted.replication_factor != actual.replication_factor:
            found.append(
                f"Topic {name} has replication factor {actual.replication_factor}; the topology requires "
                f"{wanted.replication_factor}"
            )
        for key, value in sorted(wanted.configs.items()):
            if actual.configs.get(key) != value:
                found.append(
                    f"Topic {name} has {key}={actual.configs.get(key)}; the topology requires {value}"
                )
    return tuple(found)


def describe(topology: Topology, configured: ConfiguredTopology | None) -> described.Topology:
    """Return the topology as StreamsGroupDescribe returns it: as sent, with partition counts if it is ready.

    `topology`: with its expressions replaced by topics, since the response has no field for them.
    """
    ready = configured if configured is not None and configured.is_ready else None
    return described.Topology(
        epoch=topology.epoch,
        subtopologies=tuple(_described(each, ready) for each in topology.subtopologies.values()),
    )


def _described(each: Subtopology, ready: ConfiguredTopology | None) -> described.Subtopology:
    listed = set if ready else list
    return described.Subtopology(
        subtopology_id=each.subtopology_id,
        source_topics=tuple(sorted(listed(each.source_topics))),
        repartition_sink_topics=tuple(sorted(listed(each.repartition_sink_topics))),
        repartition_source_topics=_described_topics(each.repartition_source_topics, ready),
        state_changelog_topics=_described_topics(each.state_changelog_topics, ready),
    )


def _described_topics(
    topics: tuple[TopicInfo, ...], ready: ConfiguredTopology | None
) -> tuple[described.TopicInfo, ...]:
    return tuple(
        described.TopicInfo(
            name=topic.name,
            partitions=ready.internal_topics[topic.name].partitions if ready else topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=tuple(
                described.KeyValue(key=row.key, value=row.value) for row in topic.topic_configs
            ),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    )
