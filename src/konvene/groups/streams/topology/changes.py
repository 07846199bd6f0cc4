"""Summarize the differences between two topologies of an application, to explain why the epoch was bumped.

Subtopologies are compared by id. Of one that is in both, the topics that it reads, writes and keeps its state
in are compared; changed topic configs and copartition groups are summarized as `settings`. The summary is one
line with at most `MAX_CHANGES` changes, and the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konvene.groups.streams.topology.topology import Topology
from konvene.records.streams import Subtopology, TopicInfo

__all__ = ["MAX_CHANGES", "changes"]

MAX_CHANGES = 8
"""Maximum number of changes in a summary."""


def changes(before: Topology, after: Topology) -> str:
    """Return a summary such as `epoch 0 to 1: + subtopology 2, subtopology 1 - changelog counts`."""
    found = list(_changes(before, after))
    shown = found[:MAX_CHANGES]
    if len(found) > MAX_CHANGES:
        shown.append(f"and {len(found) - MAX_CHANGES} more")
    return f"epoch {before.epoch} to {after.epoch}: {', '.join(shown) or 'nothing else'}"


def _changes(before: Topology, after: Topology) -> Iterator[str]:
    for name, subtopology in after.subtopologies.items():
        previous = before.subtopologies.get(name)
        if previous is None:
            yield f"+ subtopology {name}"
        elif previous != subtopology:
            found = list(_topic_changes(previous, subtopology)) or ["settings"]
            yield from (f"subtopology {name} {change}" for change in found)
    for name in before.subtopologies:
        if name not in after.subtopologies:
            yield f"- subtopology {name}"


def _topic_changes(before: Subtopology, after: Subtopology) -> Iterator[str]:
    for kind, old, new in (
        ("source", before.source_topics, after.source_topics),
        ("expression", before.source_topic_regex, after.source_topic_regex),
        ("sink", before.repartition_sink_topics, after.repartition_sink_topics),
        (
            "repartition topic",
            _names(before.repartition_source_topics),
            _names(after.repartition_source_topics),
        ),
        ("changelog", _names(before.state_changelog_topics), _names(after.state_changelog_topics)),
    ):
        yield from (f"+ {kind} {name}" for name in new if name not in old)
        yield from (f"- {kind} {name}" for name in old if name not in new)


def _names(topics: Iterable[TopicInfo]) -> tuple[str, ...]:
    return tuple(topic.name for topic in topics)
