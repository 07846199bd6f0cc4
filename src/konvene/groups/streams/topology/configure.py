"""From a topology and the topics there are: the tasks, the internal topics, and what stands in the way.

The steps are those of Kafka's InternalTopicManager; the first that fails decides what members are told.

    step                                                          fails with
    1. every topic that is read from outside exists, and every
       expression matches one                                     MISSING_SOURCE_TOPICS
    2. repartition topics: as the topology says, or as many
       partitions as the largest source of whoever writes them    (the topology is refused)
    3. topics that are joined have as many partitions             INCORRECTLY_PARTITIONED_TOPICS
    4. changelogs: as many as the largest source                  (the topology is refused)
    5. internal topics that exist have that many                  INCORRECTLY_PARTITIONED_TOPICS
    6. all internal topics exist                                  MISSING_INTERNAL_TOPICS: they are to be made

A subtopology has as many tasks as its largest source has partitions. Only step 6 fails with the tasks known.

`mode` is the setting `konvene.streams.mode`. With `kafka` every answer is Apache Kafka 4.4's, with `kip`
these are not:

- Kafka takes the sources whose partitions it knows when it comes by, and when it comes by depends on the hash
  of the subtopologies' ids; a repartition topic may end up with less partitions than a source of its writer
  has. `kip` takes the largest of all, whatever the order.
- Where all topics of a copartition group are for repartitioning, Kafka holds them against those with a fixed
  number anywhere in the topology. `kip` looks at the group alone.
- Kafka names three topics, in the order of a hash table. `kip` names all, sorted.

Where a topology has expressions, this is told what they match, and from there on it is the topology with
these names (`expressions`). So in either mode: `kafka` takes no expressions, but a group may have some.

This never makes, alters or looks at a topic: it is told how many partitions there are. How an existing topic
is configured does not matter to it; `remarks` compares that for the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from konvene.errors import Errors
from konvene.groups.streams.topology.expressions import Matches, named, unmatched
from konvene.groups.streams.topology.topology import Topology, hash_order, sources
from konvene.messages import streams_group_describe as described
from konvene.records.streams import Subtopology, TopicConfig, TopicInfo
from konvene.shard.errors import GroupError

KAFKA, KIP = "kafka", "kip"
MOST_NAMED = 3

Counts = Callable[[str], int | None]
"""How many partitions a topic has; None if there is no such topic."""


class Status(IntEnum):
    """What members are told about the group, as on the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Failure(NamedTuple):
    """Why the group is not ready."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic as the topology wants it."""

    name: str
    partitions: int
    replication_factor: int
    """0: the broker's default."""
    topic_configs: tuple[TopicConfig, ...] = ()

    @property
    def configs(self) -> dict[str, str]:
        return {row.key: row.value for row in self.topic_configs}


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology, held against the topics there are."""

    epoch: int
    topics: tuple[str, ...]
    """The topics whose ids and partitions make the group's metadata hash, as far as they exist."""
    tasks: Mapping[str, int]
    """How many tasks each subtopology has, by id, sorted. Empty where no internal topic could be decided."""
    internal_topics: Mapping[str, InternalTopic]
    """All repartition and changelog topics by name, existing or not; empty where `tasks` is."""
    missing: Mapping[str, InternalTopic]
    """Those of them that have to be made."""
    failure: Failure | None = None
    topology: Topology | None = None
    """What was held against them: with names for its expressions."""
    is_known: bool = True
    """Whether it is known what expressions match; if not, all else is empty."""

    @property
    def is_ready(self) -> bool:
        """Whether tasks may be assigned."""
        return self.failure is None and self.is_known


UNKNOWN = Configured(-1, (), {}, {}, {}, is_known=False)
"""Nobody has found out yet what the expressions of a topology match."""


class _Misfit(Exception):
    """Topics that exist do not fit each other."""


def configure(
    topology: Topology,
    partitions_of: Counts | Mapping[str, int | None],
    mode: str = KAFKA,
    matches: Matches | None = None,
) -> Configured:
    """Hold a topology against the topics there are. `matches`: those of them that its expressions match.

    GroupError: STREAMS_INVALID_TOPOLOGY if partitions cannot be decided whatever topics there are,
    UNKNOWN_SERVER_ERROR (without words, as Kafka) if it is malformed."""
    known = partitions_of if callable(partitions_of) else partitions_of.get
    unread = unmatched(topology, matches or {})
    topology = named(topology, matches or {})
    groups = _copartition_groups(topology, mode)
    absent = [topic for topic in topology.source_topics if known(topic) is None]
    if absent or unread:
        return _failed(topology, Failure(Status.MISSING_SOURCE_TOPICS, _unread(absent, unread, mode)))
    try:
        decided = _repartition_counts(topology, known, mode)
        _enforce_copartitioning(topology, groups, decided, known, mode)
        _add_changelogs(topology, decided, known)
        tasks = {name: _checked(_most(each, decided, known)) for name, each in topology.subtopologies.items()}
        internal = _internal_topics(topology, decided)
        _check_existing(topology, internal, known, mode)
    except _Misfit as found:
        return _failed(topology, Failure(Status.INCORRECTLY_PARTITIONED_TOPICS, str(found)))
    missing = {topic: internal[topic] for topic in _missing(topology, internal, known, mode)}
    failure = None
    if missing:
        detail = f"Internal topics are missing: {_summary(missing, mode)}"
        failure = Failure(Status.MISSING_INTERNAL_TOPICS, detail)
    return Configured(topology.epoch, topology.required_topics, tasks, internal, missing, failure, topology)


def _failed(topology: Topology, failure: Failure) -> Configured:
    return Configured(topology.epoch, topology.required_topics, {}, {}, {}, failure, topology)


def _unread(absent: Collection[str], unread: Collection[str], mode: str) -> str:
    """Which topics are missing, and which expressions match none."""
    told = [f"Source topics {_summary(absent, mode)} are missing."] if absent else []
    if unread:
        told.append(f"No topics match the source topic expressions {_summary(unread, mode)}.")
    return " ".join(told)


def _summary(topics: Collection[str], mode: str) -> str:
    shown = list(topics)
    if mode == KIP or len(shown) <= MOST_NAMED:
        return ", ".join(shown)
    return f"{', '.join(shown[:MOST_NAMED])} and {len(shown) - MOST_NAMED} additional topics"


def _walked(topology: Topology, mode: str) -> Collection[Subtopology]:
    return topology.subtopologies.values() if mode == KIP else topology.walked


def _count(topic: str, decided: Mapping[str, int], known: Counts) -> int:
    """The partitions of a topic that exists or was decided on; what exists counts more."""
    found = known(topic)
    return decided[topic] if found is None else found


def _most(subtopology: Subtopology, decided: Mapping[str, int], known: Counts) -> int:
    """The partitions of the largest source."""
    return max([_count(topic, decided, known) for topic in sources(subtopology)])


def _checked(count: int) -> int:
    """Less than one partition is what Kafka cannot work with; only a topology itself can say so."""
    if count < 1:
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    return count


# --- 2. repartition topics -------------------------------------------------------------------------


def _repartition_counts(topology: Topology, known: Counts, mode: str) -> dict[str, int]:
    """The partitions of all repartition topics, before those that are joined are made alike."""
    walked = _walked(topology, mode)
    decided = {
        topic.name: topic.partitions
        for each in walked
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    if any(each.repartition_sink_topics for each in walked):
        decide = _largest_first if mode == KIP else _in_passes
        decide(tuple(walked), decided, known)
    if not all(topic in decided for each in walked for topic in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the "
            "topology that cannot be resolved."
        )
    if not all(topic.name in decided for each in walked for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    return decided


def _invalid(message: str) -> GroupError:
    return GroupError(Errors.STREAMS_INVALID_TOPOLOGY, message)


def _largest_so_far(each: Subtopology, decided: Mapping[str, int], known: Counts) -> int | None:
    """Of the sources whose partitions are known by now. For repartitioning only what was decided counts."""
    found = [known(topic) for topic in each.source_topics]
    found += [decided.get(topic.name) for topic in each.repartition_source_topics]
    return max([count for count in found if count is not None], default=None)


def _in_passes(walked: tuple[Subtopology, ...], decided: dict[str, int], known: Counts) -> None:
    """Kafka's way: pass after pass, and whoever has any source that is known decides for all that it writes.

    A subtopology's turn is (pass, place). Only the first one after one of its sources was decided is of use,
    so no other is taken."""
    readers = _readers(walked)
    turns = [(0, at) for at, each in enumerate(walked) if _largest_so_far(each, decided, known) is not None]
    awaited = {at for _, at in turns}
    while turns:
        turn, at = heappop(turns)
        each = walked[at]
        open_sinks = [topic for topic in each.repartition_sink_topics if topic not in decided]
        if not open_sinks:
            continue
        count = _largest_so_far(each, decided, known)
        assert count is not None
        for topic in open_sinks:
            decided[topic] = count
            for reader in readers.get(topic, ()):
                if reader not in awaited:
                    awaited.add(reader)
                    heappush(turns, (turn if reader > at else turn + 1, reader))


def _largest_first(walked: tuple[Subtopology, ...], decided: dict[str, int], known: Counts) -> None:
    """The largest of all sources, through chains: whoever is reached first is reached by the largest."""
    readers = _readers(walked)
    reached: list[tuple[int, int]] = []
    for at, each in enumerate(walked):
        count = _largest_so_far(each, decided, known)
        if count is not None:
            reached.append((-count, at))
    heapify(reached)
    while reached:
        negative, at = heappop(reached)
        for topic in walked[at].repartition_sink_topics:
            if topic not in decided:
                decided[topic] = -negative
                for reader in readers.get(topic, ()):
                    heappush(reached, (negative, reader))


def _readers(walked: tuple[Subtopology, ...]) -> dict[str, list[int]]:
    """Where those are that read a repartition topic."""
    found: dict[str, list[int]] = {}
    for at, each in enumerate(walked):
        for topic in each.repartition_source_topics:
            found.setdefault(topic.name, []).append(at)
    return found


# --- 3. topics that are joined ---------------------------------------------------------------------


def _copartition_groups(topology: Topology, mode: str) -> list[list[str]]:
    """The names of topics that must have as many partitions, group by group."""
    return [
        _at(each.source_topics, group.source_topics)
        + _at([topic.name for topic in each.repartition_source_topics], group.repartition_source_topics)
        for each in _walked(topology, mode)
        for group in each.copartition_groups
    ]


def _at(names: Collection[str], indexes: Iterable[int]) -> list[str]:
    listed = list(names)
    picked = list(indexes)
    if not all(0 <= index < len(listed) for index in picked):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    return [listed[index] for index in picked]


def _enforce_copartitioning(
    topology: Topology, groups: list[list[str]], decided: dict[str, int], known: Counts, mode: str
) -> None:
    """Give the repartition topics of each group the partitions of its other topics, group by group."""
    if not groups:
        return
    topics = [topic for each in topology.walked for topic in each.repartition_source_topics]
    fixed = {topic.name for topic in topics if topic.partitions}
    internal = {topic.name for topic in topics}
    for group in groups:
        if not group:
            continue
        inner = {topic: _count(topic, decided, known) for topic in group if topic in internal}
        outer = {topic: _count(topic, decided, known) for topic in group if topic not in internal}
        if outer:
            count = _same(outer, outer)
        else:
            binding = fixed & inner.keys() if mode == KIP else fixed
            bound = {topic: _count(topic, decided, known) for topic in sorted(binding)}
            count = _same(bound, inner) if bound else max(inner.values())
        for topic in sorted(inner) if mode == KIP else hash_order(inner):
            if topic in fixed and inner[topic] != count:
                raise _Misfit(
                    f"Number of partitions [{inner[topic]}] of repartition topic [{topic}] doesn't match "
                    f"number of partitions [{count}] of the source topic."
                )
        decided.update(dict.fromkeys(inner, count))


def _same(counts: Mapping[str, int], told: Mapping[str, int]) -> int:
    """The one number of partitions that they all have. `told`: the topics that are named if they do not."""
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic}={told[topic]}" for topic in sorted(told))
        raise _Misfit(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    return next(iter(counts.values()))


# --- 4. changelogs ---------------------------------------------------------------------------------


def _add_changelogs(topology: Topology, decided: dict[str, int], known: Counts) -> None:
    """As many partitions as there are tasks; a subtopology that reads nothing is refused here."""
    found: dict[str, int] = {}
    for each in topology.walked:
        if not each.source_topics and not each.repartition_source_topics:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        if each.state_changelog_topics:
            count = _most(each, decided, known)
            found.update((topic.name, count) for topic in each.state_changelog_topics)
    decided.update(found)


# --- 5. and 6. what exists -------------------------------------------------------------------------


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
    topology: Topology, internal: Mapping[str, InternalTopic], known: Counts, mode: str
) -> None:
    """An internal topic that exists and has other partitions is nobody's to alter: it is told."""
    wrong = {name for name, topic in internal.items() if known(name) not in (None, topic.partitions)}
    if not wrong:
        return
    order = sorted(wrong) if mode == KIP else hash_order(topology.required_topics)
    name = next(name for name in order if name in wrong)
    raise _Misfit(
        f"Existing topic {name} has different number of partitions: expected {internal[name].partitions}, "
        f"found {known(name)}"
    )


def _missing(
    topology: Topology, internal: Mapping[str, InternalTopic], known: Counts, mode: str
) -> list[str]:
    """The internal topics that do not exist, in the order in which they are told and made."""
    absent = {name for name in internal if known(name) is None}
    if not absent:
        return []
    if mode == KIP:
        return sorted(absent)
    put = dict.fromkeys(
        name
        for each in topology.subtopologies.values()
        for topics in (each.repartition_source_topics, each.state_changelog_topics)
        for name in hash_order([topic.name for topic in topics])
    )
    return [name for name in hash_order(put) if name in absent]


# --- for the log, and for those who ask ------------------------------------------------------------


class Existing(NamedTuple):
    """What an internal topic is, besides its partitions."""

    replication_factor: int
    configs: Mapping[str, str]


def remarks(configured: Configured, existing: Mapping[str, Existing]) -> tuple[str, ...]:
    """In what else existing internal topics differ from the topology: worth a line in the log, no more."""
    found = []
    for name in sorted(configured.internal_topics.keys() & existing.keys()):
        wanted, has = configured.internal_topics[name], existing[name]
        if wanted.replication_factor > 0 and wanted.replication_factor != has.replication_factor:
            found.append(
                f"Topic {name} has replication factor {has.replication_factor}; the topology says "
                f"{wanted.replication_factor}"
            )
        for key, value in sorted(wanted.configs.items()):
            if has.configs.get(key) != value:
                found.append(f"Topic {name} has {key}={has.configs.get(key)}; the topology says {value}")
    return tuple(found)


def describe(topology: Topology, configured: Configured | None) -> described.Topology:
    """What StreamsGroupDescribe tells: as it was sent, and with all partitions once the group is ready.

    Expressions have no field there. `topology`: with names for them, as far as they are known."""
    ready = configured if configured is not None and configured.is_ready else None
    return described.Topology(
        epoch=topology.epoch,
        subtopologies=tuple(_described(each, ready) for each in topology.subtopologies.values()),
    )


def _described(each: Subtopology, ready: Configured | None) -> described.Subtopology:
    listed = set if ready else list
    return described.Subtopology(
        subtopology_id=each.subtopology_id,
        source_topics=tuple(sorted(listed(each.source_topics))),
        repartition_sink_topics=tuple(sorted(listed(each.repartition_sink_topics))),
        repartition_source_topics=_described_topics(each.repartition_source_topics, ready),
        state_changelog_topics=_described_topics(each.state_changelog_topics, ready),
    )


def _described_topics(
    topics: tuple[TopicInfo, ...], ready: Configured | None
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
