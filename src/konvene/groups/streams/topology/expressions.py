"""Regular expressions in a topology: which there are, and the same topology with names instead.

An expression is one of RE2 and is read as those of consumer groups are (`consumer.regex`). Which topics it
matches is found out elsewhere and kept beside the log (`resolving`); here that is put into the topology:

    source topics of a subtopology   those that it names, in its order; then the others that match, sorted
    topics that are joined           those that are named, and all that match the expressions

so nobody else has to know of expressions: what is decided of `named(topology, matches)` is decided as if the
member had sent these names.

The broker's own topics match nothing, nor do topics by which the topology itself repartitions or in which it
keeps state: an application that reads `.*` does not read what it writes for itself. That is so in neither
consumer groups nor KIP-1071, which says nothing of it.

Not decided here: whether somebody may see a topic; and what happens if two subtopologies match the same one.
Both read it then, as they would by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from konvene.groups.consumer import regex
from konvene.groups.streams.topology.topology import Topology
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.records.streams import CopartitionGroup, StreamsGroupTopologyValue, Subtopology
from konvene.shard.image import Topics

FIELD = "SourceTopicRegex"

Matches = Mapping[str, Collection[str]]
"""The topics that match, by expression."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What expressions were found to match, whether or not the application may read it."""

    matches: Mapping[str, frozenset[str]]
    version: int
    """Of the topics that were looked at."""
    timestamp_ms: int


def expressions(topology: Topology | None) -> tuple[str, ...]:
    """All that a topology has, each once, sorted."""
    if topology is None:
        return ()
    return tuple(sorted({each for sub in topology.walked for each in sub.source_topic_regex}))


def check(topology: Topology, before: Topology | None) -> None:
    """Whether what is new in the topology are expressions. Raises INVALID_REGULAR_EXPRESSION."""
    valid = set(expressions(before))
    for expression in expressions(topology):
        if expression not in valid:
            regex.validate(expression, FIELD)


def own_topics(topology: Topology) -> set[str]:
    """What the application writes for itself."""
    found: set[str] = set()
    for each in topology.walked:
        found.update(each.repartition_sink_topics)
        found.update(topic.name for topic in each.repartition_source_topics)
        found.update(topic.name for topic in each.state_changelog_topics)
    return found


def visible(topology: Topology, topics: Iterable[str]) -> set[str]:
    """Those of the topics that its expressions may match."""
    return set(topics) - INTERNAL_TOPICS - own_topics(topology)


def named(topology: Topology, matches: Matches) -> Topology:
    """The same topology with the names of topics instead of expressions; itself if it has none.

    An expression that `matches` does not have matches nothing."""
    if not expressions(topology):
        return topology
    kept = {expression: sorted(visible(topology, found)) for expression, found in matches.items()}
    subtopologies = tuple(_named(each, kept) for each in topology.subtopologies.values())
    return Topology.from_value(StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies))


def _named(each: Subtopology, matches: Matches) -> Subtopology:
    if not each.source_topic_regex:
        return each
    found = {topic for expression in each.source_topic_regex for topic in matches.get(expression, ())}
    reads = (*each.source_topics, *sorted(found - set(each.source_topics)))
    at: dict[str, int] = {}
    for index, topic in enumerate(reads):
        at.setdefault(topic, index)
    joined = tuple(_joined(group, each, matches, at) for group in each.copartition_groups)
    return each.replace(source_topics=reads, source_topic_regex=(), copartition_groups=joined)


def _joined(
    group: CopartitionGroup, each: Subtopology, matches: Matches, at: Mapping[str, int]
) -> CopartitionGroup:
    """All topics that an expression matches are joined with the others of the group."""
    if not group.source_topic_regex:
        return group
    found = set(group.source_topics)
    for index in group.source_topic_regex:
        if 0 <= index < len(each.source_topic_regex):  # Else no member has said so.
            found.update(at[topic] for topic in matches.get(each.source_topic_regex[index], ()))
    return group.replace(source_topics=tuple(sorted(found)), source_topic_regex=())


def known(topology: Topology, resolved: Resolved | None, topics: Topics) -> Matches | None:
    """What the expressions match, of the topics that there are; None while that is not known of one."""
    wanted = expressions(topology)
    if not wanted:
        return {}
    if resolved is None or not resolved.matches.keys() >= set(wanted):
        return None
    there, matches = topics.by_name, resolved.matches
    return {each: [topic for topic in matches[each] if topic in there] for each in wanted}


def unmatched(topology: Topology, matches: Matches) -> tuple[str, ...]:
    """The expressions that match no topic, sorted."""
    return tuple(each for each in expressions(topology) if not visible(topology, matches.get(each, ())))


def reader_of(topology: Topology, topic: str) -> str | None:
    """The subtopology that reads a topic, also where nobody has yet found out what expressions match.

    For one topic at a time, and only where the answer cannot wait: after a coordinator was loaded."""
    found = expressions(topology)
    if not found:
        return topology.readers.get(topic)
    return named(topology, regex.matching(found, (topic,))).readers.get(topic)
