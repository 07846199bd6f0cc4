"""Topologies for a migration dry run: from a JSON file, or from another group of the log.

A file contains what `konvene groups describe GROUP --topology --json` prints for a group with a topology,
such as the same application in another environment; Kafka's field names are accepted as well. Descriptions
contain no copartition groups, so these are not checked.

Names of internal topics begin with the application id: `words-counts-changelog`. If the owner of the topology
is known, `rename_internal_topics` replaces its id by that of the group under test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.groups.group_type import Group
    from konvene.groups.streams.topology.topology import Topology as Known
    from konvene.messages.streams_group_heartbeat import Subtopology, TopicInfo, Topology
    from konvene.records.streams import TopicInfo as RecordTopic

__all__ = ["read_file", "rename_internal_topics", "topology_of_group"]


def read_file(path: Path) -> tuple[Topology, str | None]:
    """Read a topology and, if the file contains it, its group id. Raises UsageError for an invalid file."""
    try:
        return _topology(json.loads(path.read_text()))
    except OSError as error:
        raise click.UsageError(f"cannot read --topology {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise click.UsageError(
            f"--topology {path} is not a topology: {what}. "
            "`konvene groups describe GROUP --topology --json` prints one."
        ) from None


def _topology(document: Any) -> tuple[Topology, str | None]:
    from konvene.messages.streams_group_heartbeat import Topology

    if isinstance(document, list):
        if len(document) != 1:
            raise ValueError(f"it has {counted(len(document), 'group')}")
        document = document[0]
    document = _snake_case(document)
    owner = document.get("group", document.get("group_id"))
    inner = document.get("topology")
    document = _snake_case(inner) if isinstance(inner, Mapping) else document
    rows = tuple(_subtopology(_snake_case(each)) for each in document["subtopologies"])
    if not rows:
        raise ValueError("it has no subtopologies")
    return Topology(epoch=0, subtopologies=rows), None if owner is None else str(owner)


def rename_internal_topics(topology: Topology, group: str, owner: str | None) -> Topology:
    """Replace the prefix `owner` of internal topic names by `group`; change nothing if `owner` is None."""
    if owner in (None, group):
        return topology
    before, after = f"{owner}-", f"{group}-"

    def name(topic: str) -> str:
        return after + topic[len(before) :] if topic.startswith(before) else topic

    return topology.replace(
        subtopologies=tuple(
            each.replace(
                repartition_sink_topics=tuple(map(name, each.repartition_sink_topics)),
                repartition_source_topics=tuple(
                    row.replace(name=name(row.name)) for row in each.repartition_source_topics
                ),
                state_changelog_topics=tuple(
                    row.replace(name=name(row.name)) for row in each.state_changelog_topics
                ),
            )
            for each in topology.subtopologies
        )
    )


def _snake_case(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with Kafka's field names (`sourceTopics`) converted to konvene's
    (`source_topics`)."""
    return {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): value for name, value in document.items()}


def _subtopology(document: Mapping[str, Any]) -> Subtopology:
    from konvene.messages.streams_group_heartbeat import Subtopology

    changelogs = tuple(_topic(each) for each in document.get("state_changelog_topics") or ())
    return Subtopology(
        subtopology_id=str(document["id"] if "id" in document else document["subtopology_id"]),
        source_topics=_names(document.get("source_topics")),
        source_topic_regex=_names(document.get("source_topic_regex")),
        repartition_sink_topics=_names(document.get("repartition_sink_topics")),
        repartition_source_topics=tuple(
            _topic(each) for each in document.get("repartition_source_topics") or ()
        ),
        # Descriptions contain the actual number; applications leave it to the coordinator.
        state_changelog_topics=tuple(each.replace(partitions=0) for each in changelogs),
    )


def _names(document: Any) -> tuple[str, ...]:
    return tuple(map(str, document or ()))


def _topic(document: Any) -> TopicInfo:
    from konvene.messages.streams_group_heartbeat import KeyValue, TopicInfo

    if isinstance(document, str):
        return TopicInfo(name=document)
    fields = _snake_case(document)
    configs = fields.get("configs") or fields.get("topic_configs") or {}
    pairs = configs.items() if isinstance(configs, Mapping) else [(c["key"], c["value"]) for c in configs]
    return TopicInfo(
        name=str(fields["name"]),
        partitions=int(fields.get("partitions") or 0),
        replication_factor=int(fields.get("replication_factor") or 0),
        topic_configs=tuple(KeyValue(key=key, value=str(value)) for key, value in sorted(pairs)),
    )


def topology_of_group(group: Group | None, name: str) -> Topology:
    """Return the topology of a streams group. Raises UsageError if the group has none."""
    from konvene.groups.streams.group import StreamsGroup
    from konvene.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, Topology

    known: Known | None = group.topology if isinstance(group, StreamsGroup) else None
    if known is None:
        what = "is not a group of the log" if group is None else "has no topology"
        raise click.UsageError(f"--topology-of {name}: {name} {what}; it needs a streams group.")
    return Topology(
        epoch=0,
        subtopologies=tuple(
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=tuple(map(_from_record, each.state_changelog_topics)),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=tuple(map(_from_record, each.repartition_source_topics)),
                copartition_groups=tuple(
                    CopartitionGroup(
                        source_topics=row.source_topics,
                        source_topic_regex=row.source_topic_regex,
                        repartition_source_topics=row.repartition_source_topics,
                    )
                    for row in each.copartition_groups
                ),
            )
            for each in known.subtopologies.values()
        ),
    )


def _from_record(topic: RecordTopic) -> TopicInfo:
    from konvene.messages.streams_group_heartbeat import KeyValue, TopicInfo

    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=tuple(KeyValue(key=row.key, value=row.value) for row in topic.topic_configs),
    )
