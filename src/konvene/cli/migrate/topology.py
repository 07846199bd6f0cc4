"""The topology of an application, for a rehearsal: from a file, or from another group.

A file is JSON as `konvene groups describe GROUP --topology --json` prints it of a group that has one already,
such as that of the same application in another environment; also with Kafka's names in the place of ours. A
description does not say which topics have to have as many partitions as others (copartition groups): so that
is not looked at.

Internal topics are named after the application: `words-counts-changelog`. Where it is known whose topology it
is, those names are made those of the group that is rehearsed (`named_after`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from konvene.groups.streams.topology.topology import Topology as Known
    from konvene.messages.streams_group_heartbeat import Subtopology, TopicInfo, Topology
    from konvene.records.streams import TopicInfo as KeptTopic

__all__ = ["named_after", "of_group", "read_file"]


def read_file(path: Path) -> tuple[Topology, str | None]:
    """And whose it is, if the file says so. Raises UsageError where the file has no topology in it."""
    try:
        return _topology(json.loads(path.read_text()))
    except OSError as error:
        raise click.UsageError(f"cannot read --topology {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise click.UsageError(
            f"--topology {path} is no topology: {what}. "
            "`konvene groups describe GROUP --topology --json` prints one."
        ) from None


def _topology(said: Any) -> tuple[Topology, str | None]:
    from konvene.messages.streams_group_heartbeat import Topology

    if isinstance(said, list):
        if len(said) != 1:
            raise ValueError(f"it has {len(said)} groups")
        said = said[0]
    said = _ours(said)
    whose = said.get("group", said.get("group_id"))
    inner = said.get("topology")
    said = _ours(inner) if isinstance(inner, Mapping) else said
    rows = tuple(_subtopology(_ours(each)) for each in said["subtopologies"])
    if not rows:
        raise ValueError("it has no subtopologies")
    return Topology(epoch=0, subtopologies=rows), None if whose is None else str(whose)


def named_after(topology: Topology, group: str, whose: str | None) -> Topology:
    """The same, its internal topics named after this group where they are named after that one."""
    if whose in (None, group):
        return topology
    before, after = f"{whose}-", f"{group}-"

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


def _ours(said: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's names as ours: `sourceTopics` is `source_topics`."""
    return {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): value for name, value in said.items()}


def _subtopology(said: Mapping[str, Any]) -> Subtopology:
    from konvene.messages.streams_group_heartbeat import Subtopology

    changelogs = tuple(_topic(each) for each in said.get("state_changelog_topics") or ())
    return Subtopology(
        subtopology_id=str(said["id"] if "id" in said else said["subtopology_id"]),
        source_topics=_names(said.get("source_topics")),
        source_topic_regex=_names(said.get("source_topic_regex")),
        repartition_sink_topics=_names(said.get("repartition_sink_topics")),
        repartition_source_topics=tuple(_topic(each) for each in said.get("repartition_source_topics") or ()),
        # A description tells how many there are; an application leaves that to its tasks.
        state_changelog_topics=tuple(each.replace(partitions=0) for each in changelogs),
    )


def _names(said: Any) -> tuple[str, ...]:
    return tuple(map(str, said or ()))


def _topic(said: Any) -> TopicInfo:
    from konvene.messages.streams_group_heartbeat import KeyValue, TopicInfo

    if isinstance(said, str):
        return TopicInfo(name=said)
    told = _ours(said)
    configs = told.get("configs") or told.get("topic_configs") or {}
    pairs = configs.items() if isinstance(configs, Mapping) else [(c["key"], c["value"]) for c in configs]
    return TopicInfo(
        name=str(told["name"]),
        partitions=int(told.get("partitions") or 0),
        replication_factor=int(told.get("replication_factor") or 0),
        topic_configs=tuple(KeyValue(key=key, value=str(value)) for key, value in sorted(pairs)),
    )


def of_group(group: Any, name: str) -> Topology:
    """That of a streams group, whole. Raises UsageError where it has none."""
    from konvene.groups.streams.group import StreamsGroup
    from konvene.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, Topology

    known: Known | None = group.topology if isinstance(group, StreamsGroup) else None
    if known is None:
        what = "is no group of the log" if group is None else "has no topology"
        raise click.UsageError(f"--topology-of {name}: {name} {what}; it takes a streams group.")
    return Topology(
        epoch=0,
        subtopologies=tuple(
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=tuple(map(_kept, each.state_changelog_topics)),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=tuple(map(_kept, each.repartition_source_topics)),
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


def _kept(topic: KeptTopic) -> TopicInfo:
    from konvene.messages.streams_group_heartbeat import KeyValue, TopicInfo

    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=tuple(KeyValue(key=row.key, value=row.value) for row in topic.topic_configs),
    )
