"""Regular expressions in a topology: list them, validate them, and replace them by the topics they match.

Expressions are RE2 and are validated as those of consumer groups are (`consumer.regex`). Which topics they
match is resolved in the background and kept as soft state (`resolution`); this module puts the result into
the topology:

    source topics of a subtopology   the named ones, in its order; then the others that match, sorted
    copartitioned topics             the named ones, and all that match the expressions

Other modules need not distinguish: the result of `expand_expressions` is handled like a topology with topic
names.

Expressions never match the broker's internal topics, or the repartition and changelog topics of the topology:
an application that reads `.*` does not read its own internal topics. KIP-1071 does not specify that.

Not decided here: whether a principal may describe a topic. If expressions of two subtopologies match the same
topic, both read it.
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
"""The matching topics by expression."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that each expression matches, before `matchable` excludes internal ones."""

    matches: Mapping[str, frozenset[str]]
    version: int
    """Version of the topics image that was matched."""
    timestamp_ms: int


def expressions(topology: Topology | None) -> tuple[str, ...]:
    """Return all expressions of a topology, without duplicates, sorted."""
    if topology is None:
        return ()
    return tuple(sorted({each for sub in topology.in_hash_order for each in sub.source_topic_regex}))


def validate_expressions(topology: Topology, before: Topology | None) -> None:
    """Validate expressions that the topology `before` does not have. Raises INVALID_REGULAR_EXPRESSION."""
    valid = set(expressions(before))
    for expression in expressions(topology):
        if expression not in valid:
            regex.validate(expression, FIELD)


def internal_topic_names(topology: Topology) -> set[str]:
    """Return the repartition and changelog topics of the topology."""
    found: set[str] = set()
    for each in topology.in_hash_order:
        found.update(each.repartition_sink_topics)
        found.update(topic.name for topic in each.repartition_source_topics)
        found.update(topic.name for topic in each.state_changelog_topics)
    return found


def matchable(topology: Topology, topics: Iterable[str]) -> set[str]:
    """Return those of the topics that expressions of the topology may match: all but internal ones."""
    return set(topics) - INTERNAL_TOPICS - internal_topic_names(topology)


def expand_expressions(topology: Topology, matches: Matches) -> Topology:
    """Return the topology with its expressions replaced by matching topics; itself if it has none.

    An expression that is not in `matches` matches nothing.
    """
    if not expressions(topology):
        return topology
    allowed = {expression: sorted(matchable(topology, found)) for expression, found in matches.items()}
    subtopologies = tuple(_expand(each, allowed) for each in topology.subtopologies.values())
    return Topology.from_value(StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies))


def _expand(each: Subtopology, matches: Matches) -> Subtopology:
    if not each.source_topic_regex:
        return each
    found = {topic for expression in each.source_topic_regex for topic in matches.get(expression, ())}
    reads = (*each.source_topics, *sorted(found - set(each.source_topics)))
    at: dict[str, int] = {}
    for index, topic in enumerate(reads):
        at.setdefault(topic, index)
    groups = tuple(_expand_copartition(group, each, matches, at) for group in each.copartition_groups)
    return each.replace(source_topics=reads, source_topic_regex=(), copartition_groups=groups)


def _expand_copartition(
    group: CopartitionGroup, each: Subtopology, matches: Matches, at: Mapping[str, int]
) -> CopartitionGroup:
    """Return the copartition group with its expressions replaced by the topics that they match.

    `at`: indexes of the topics in the subtopology's source topics.
    """
    if not group.source_topic_regex:
        return group
    found = set(group.source_topics)
    for index in group.source_topic_regex:
        if 0 <= index < len(each.source_topic_regex):  # A malformed index is ignored.
            found.update(at[topic] for topic in matches.get(each.source_topic_regex[index], ()))
    return group.replace(source_topics=tuple(sorted(found)), source_topic_regex=())


def current_matches(topology: Topology, resolved: Resolved | None, topics: Topics) -> Matches | None:
    """Return the existing topics that each expression matches; None if any expression is not resolved."""
    wanted = expressions(topology)
    if not wanted:
        return {}
    if resolved is None or not resolved.matches.keys() >= set(wanted):
        return None
    existing, matches = topics.by_name, resolved.matches
    return {each: [topic for topic in matches[each] if topic in existing] for each in wanted}


def unmatched(topology: Topology, matches: Matches) -> tuple[str, ...]:
    """Return the expressions that match no topic, sorted."""
    return tuple(each for each in expressions(topology) if not matchable(topology, matches.get(each, ())))


def reader_of(topology: Topology, topic: str) -> str | None:
    """Return the id of the subtopology that reads a topic, matching expressions at once; None if none does.

    For single topics after a coordinator load, before the expressions are resolved in the background.
    """
    found = expressions(topology)
    if not found:
        return topology.readers.get(topic)
    return expand_expressions(topology, regex.matching(found, (topic,))).readers.get(topic)
