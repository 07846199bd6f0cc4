"""The topology of a streams group, drawn as a tree: what each subtopology reads, keeps and writes.

All of it is what StreamsGroupDescribe tells of any group. Where the broker also knows what is inside of a
subtopology (KIP-1331), its processors stand beneath it, each under the one that feeds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, SubtopologyNodes, TopologyNode
    from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology

__all__ = ["document", "drawn"]


class Branch(NamedTuple):
    """A line, and what stands beneath it."""

    line: str
    below: Sequence[Branch] = ()


def drawn(group: StreamsGroupDescription) -> list[str]:
    """The tree's lines."""
    topology = group.topology
    if topology is None:
        return [f"{group.group_id}: no member has told its topology yet"]
    inside = {
        each.subtopology_id: each for each in (group.description.subtopologies if group.description else ())
    }
    below = [_subtopology(each, topology, inside.get(each.subtopology_id)) for each in _in_order(topology)]
    for store in group.description.global_stores if group.description else ():
        nodes = (store.source, store.processor)
        below.append(Branch("global store", _processors(nodes)))
    return _lines(Branch(f"{group.group_id} (topology epoch {topology.epoch})", below))


def _in_order(topology: Topology) -> list[Subtopology]:
    def place(each: Subtopology) -> tuple[bool, int, str]:
        name = each.subtopology_id
        number = int(name) if name.isascii() and name.isdigit() else -1
        return number < 0, number, name

    return sorted(topology.subtopologies, key=place)


def _subtopology(each: Subtopology, topology: Topology, inside: SubtopologyNodes | None) -> Branch:
    below = [Branch(f"reads {topic}") for topic in each.source_topics]
    for made in each.repartition_source_topics:
        below.append(Branch(f"reads {_internal(made)}{_from(made.name, topology)}"))
    below += [Branch(f"keeps {_internal(made)}") for made in each.state_changelog_topics]
    below += [Branch(f"writes {topic}{_to(topic, topology)}") for topic in each.repartition_sink_topics]
    if inside is not None:
        below.append(Branch("processors", _processors(inside.nodes)))
    return Branch(f"subtopology {each.subtopology_id}", below)


def _internal(topic: InternalTopic) -> str:
    """Its name, with what the application wants it to be."""
    wants = [f"{topic.partitions} partitions"] if topic.partitions else []
    if topic.replication_factor > 0:
        wants.append(f"replication factor {topic.replication_factor}")
    wants += [f"{name}={value}" for name, value in sorted(topic.configs.items())]
    return f"{topic.name} ({', '.join(wants)})" if wants else topic.name


def _from(name: str, topology: Topology) -> str:
    writers = [each.subtopology_id for each in _in_order(topology) if name in each.repartition_sink_topics]
    return f" <- {', '.join(writers)}" if writers else ""


def _to(name: str, topology: Topology) -> str:
    readers = [each.subtopology_id for each in _in_order(topology) if name in each.reads]
    return f" -> {', '.join(readers)}" if readers else ""


# inside of a subtopology ----------------------------------------------------------------------


def _processors(nodes: Sequence[TopologyNode]) -> list[Branch]:
    """From the sources on; one that several feed stands whole under the first, and by name under the rest."""
    by_name = {node.name: node for node in nodes}
    fed = {name for node in nodes for name in node.successors}
    shown: set[str] = set()
    roots = [node for node in nodes if node.name not in fed] or list(nodes[:1])
    return [_processor(node, by_name, shown) for node in roots]


def _processor(node: TopologyNode, by_name: Mapping[str, TopologyNode], shown: set[str]) -> Branch:
    if node.name in shown:
        return Branch(f"{node.name} (see above)")
    shown.add(node.name)
    below = [_processor(by_name[name], by_name, shown) for name in node.successors if name in by_name]
    return Branch(f"{node.name}{_what(node)}", below)


def _what(node: TopologyNode) -> str:
    if node.source_topics:
        return f" (topics: {', '.join(sorted(node.source_topics))})"
    if node.sink_topic is not None:
        return f" (topic: {node.sink_topic})"
    return f" (stores: {', '.join(sorted(node.stores))})" if node.stores else ""


def _lines(root: Branch, before: str = "", beneath: str = "") -> list[str]:
    lines = [before + root.line]
    for i, each in enumerate(root.below):
        last = i == len(root.below) - 1
        lines += _lines(each, beneath + ("└─ " if last else "├─ "), beneath + ("   " if last else "│  "))
    return lines


# as JSON --------------------------------------------------------------------------------------


def document(group: StreamsGroupDescription) -> dict[str, Any] | None:
    """The topology, and its processors where they are known."""
    topology = group.topology
    if topology is None:
        return None
    out: dict[str, Any] = {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": each.subtopology_id,
                "source_topics": list(each.source_topics),
                "repartition_sink_topics": list(each.repartition_sink_topics),
                "state_changelog_topics": [_topic(made) for made in each.state_changelog_topics],
                "repartition_source_topics": [_topic(made) for made in each.repartition_source_topics],
            }
            for each in _in_order(topology)
        ],
    }
    if group.description is not None:
        out["processors"] = {
            each.subtopology_id: [_node(node) for node in each.nodes]
            for each in group.description.subtopologies
        }
        out["global_stores"] = [
            {"source": _node(each.source), "processor": _node(each.processor)}
            for each in group.description.global_stores
        ]
    return out


def _topic(topic: InternalTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions or None,
        "replication_factor": topic.replication_factor or None,
        "configs": dict(sorted(topic.configs.items())),
    }


def _node(node: TopologyNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "source_topics": list(node.source_topics),
        "sink_topic": node.sink_topic,
        "stores": list(node.stores),
        "successors": list(node.successors),
    }
