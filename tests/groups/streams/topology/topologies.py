"""Builders of topologies, and recorded results of Kafka 4.4.0 for many of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from konvene.groups.streams.topology.topology import Topology
from konvene.messages import streams_group_heartbeat as wire

VECTORS = Path(__file__).parents[3] / "vectors" / "streams"


def vectors(name: str) -> list[dict[str, Any]]:
    """Return recorded cases, one per line, with the result of Kafka's classes under `kafka`."""
    lines = gzip.decompress((VECTORS / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


def info(text: str, rf: int = 0, **configs: str) -> wire.TopicInfo:
    """Return a topic; `text` is `name`, or `name:partitions` for a fixed partition count."""
    name, _, partitions = text.partition(":")
    rows = tuple(wire.KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items())
    return wire.TopicInfo(
        name=name, partitions=int(partitions or 0), replication_factor=rf, topic_configs=rows
    )


def infos(text: str | tuple[wire.TopicInfo, ...]) -> tuple[wire.TopicInfo, ...]:
    return tuple(map(info, text.split())) if isinstance(text, str) else text


def sub(
    name: str,
    reads: str = "",
    *,
    repartitioned: str | tuple[wire.TopicInfo, ...] = "",
    writes: str = "",
    state: str | tuple[wire.TopicInfo, ...] = "",
    joined: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (),
) -> wire.Subtopology:
    """Return a subtopology; topics are separated by spaces. `joined`: indexes of sources, of repartition
    sources."""
    return wire.Subtopology(
        subtopology_id=name,
        source_topics=tuple(reads.split()),
        repartition_source_topics=infos(repartitioned),
        repartition_sink_topics=tuple(writes.split()),
        state_changelog_topics=infos(state),
        copartition_groups=tuple(
            wire.CopartitionGroup(source_topics=outer, repartition_source_topics=inner)
            for outer, inner in joined
        ),
    )


def sent(*subtopologies: wire.Subtopology, epoch: int = 0) -> wire.Topology:
    return wire.Topology(epoch=epoch, subtopologies=subtopologies)


def topology(*subtopologies: wire.Subtopology, epoch: int = 0) -> Topology:
    return Topology.from_request(sent(*subtopologies, epoch=epoch))
