"""What is different in an application's next topology, in words: for who reads why a group's epoch moved.

Whole subtopologies come and go by their ids, and within one that stays, the topics that it reads, writes and
keeps its state in. That a topic's settings are others, or which sources are partitioned alike, is told as
such and no more. It is a line, not a document: beyond so many changes it says how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konvene.groups.streams.topology.topology import Topology
from konvene.records.streams import Subtopology, TopicInfo

__all__ = ["MOST", "changes"]

MOST = 8
"""So many changes are told."""


def changes(before: Topology, after: Topology) -> str:
    """Such as `epoch 0 to 1: + subtopology 2, subtopology 1 - changelog counts`."""
    found = list(_changes(before, after))
    told = [*found[:MOST], *([f"and {len(found) - MOST} more"] if len(found) > MOST else [])]
    return f"epoch {before.epoch} to {after.epoch}: {', '.join(told) or 'nothing else'}"


def _changes(before: Topology, after: Topology) -> Iterator[str]:
    for name, subtopology in after.subtopologies.items():
        known = before.subtopologies.get(name)
        if known is None:
            yield f"+ subtopology {name}"
        elif known != subtopology:
            found = list(_within(known, subtopology)) or ["settings"]
            yield from (f"subtopology {name} {each}" for each in found)
    for name in before.subtopologies:
        if name not in after.subtopologies:
            yield f"- subtopology {name}"


def _within(before: Subtopology, after: Subtopology) -> Iterator[str]:
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
