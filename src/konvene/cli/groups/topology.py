"""The topology of a streams group as a tree: what each subtopology reads, stores and writes.

StreamsGroupDescribe of any broker contains all of it. If the broker also has a topology description
(KIP-1331), the processors of each subtopology are shown as trees: below each one are those that it feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, SubtopologyNodes, TopologyNode
    from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology

__all__ = ["document", "tree_lines"]


class Node(NamedTuple):
    """A node of the printed tree: its line, and its children."""

    line: str
    children: Sequence[Node] = ()


def tree_lines(group: StreamsGroupDescription) -> list[str]:
    """Return the topology of the group as the lines of a tree."""
    topology = group.topology
    if topology is None:
        return [f"{group.group_id}: no member has sent a topology yet"]
    descriptions = {
        each.subtopology_id: each for each in (group.description.subtopologies if group.description else ())
    }
    children = [
        _subtopology(each, topology, descriptions.get(each.subtopology_id))
        for each in _sorted_subtopologies(topology)
    ]
    for store in group.description.global_stores if group.description else ():
        nodes = (store.source, store.processor)
        children.append(Node("global store", _processors(nodes)))
    return _lines(Node(f"{group.group_id} (topology epoch {topology.epoch})", children))


def _sorted_subtopologies(topology: Topology) -> list[Subtopology]:
    def sort_key(each: Subtopology) -> tuple[bool, int, str]:
        name = each.subtopology_id
        number = int(name) if name.isascii() and name.isdigit() else -1
        return number < 0, number, name

    return sorted(topology.subtopologies, key=sort_key)


def _subtopology(each: Subtopology, topology: Topology, description: SubtopologyNodes | None) -> Node:
    children = [Node(f"reads {topic}") for topic in each.source_topics]
    for made in each.repartition_source_topics:
        children.append(Node(f"reads {_internal(made)}{_from(made.name, topology)}"))
    children += [Node(f"keeps {_internal(made)}") for made in each.state_changelog_topics]
    children += [Node(f"writes {topic}{_to(topic, topology)}") for topic in each.repartition_sink_topics]
    if description is not None:
        children.append(Node("processors", _processors(description.nodes)))
    return Node(f"subtopology {each.subtopology_id}", children)


def _internal(topic: InternalTopic) -> str:
    """Return the name of an internal topic, with the settings that the application requests for it."""
    settings = [counted(topic.partitions, "partition")] if topic.partitions else []
    if topic.replication_factor > 0:
        settings.append(f"replication factor {topic.replication_factor}")
    settings += [f"{name}={value}" for name, value in sorted(topic.configs.items())]
    return f"{topic.name} ({', '.join(settings)})" if settings else topic.name


def _from(name: str, topology: Topology) -> str:
    writers = [
        each.subtopology_id
        for each in _sorted_subtopologies(topology)
        if name in each.repartition_sink_topics
    ]
    return f" <- {', '.join(writers)}" if writers else ""


def _to(name: str, topology: Topology) -> str:
    readers = [each.subtopology_id for each in _sorted_subtopologies(topology) if name in each.reads]
    return f" -> {', '.join(readers)}" if readers else ""


# processors -----------------------------------------------------------------------------------


def _processors(nodes: Sequence[TopologyNode]) -> list[Node]:
    """Return the trees that begin at the source processors. A processor with several inputs is expanded where
    it occurs first."""
    by_name = {node.name: node for node in nodes}
    fed = {name for node in nodes for name in node.successors}
    shown: set[str] = set()
    roots = [node for node in nodes if node.name not in fed] or list(nodes[:1])
    return [_processor(node, by_name, shown) for node in roots]


def _processor(node: TopologyNode, by_name: Mapping[str, TopologyNode], shown: set[str]) -> Node:
    if node.name in shown:
        return Node(f"{node.name} (see above)")
    shown.add(node.name)
    children = [_processor(by_name[name], by_name, shown) for name in node.successors if name in by_name]
    return Node(f"{node.name}{_details(node)}", children)


def _details(node: TopologyNode) -> str:
    if node.source_topics:
        return f" (topics: {', '.join(sorted(node.source_topics))})"
    if node.sink_topic is not None:
        return f" (topic: {node.sink_topic})"
    return f" (stores: {', '.join(sorted(node.stores))})" if node.stores else ""


def _lines(root: Node, prefix: str = "", child_prefix: str = "") -> list[str]:
    lines = [prefix + root.line]
    for i, each in enumerate(root.children):
        last = i == len(root.children) - 1
        lines += _lines(
            each, child_prefix + ("└─ " if last else "├─ "), child_prefix + ("   " if last else "│  ")
        )
    return lines


# JSON -----------------------------------------------------------------------------------------


def document(group: StreamsGroupDescription) -> dict[str, object] | None:
    """Return the topology as a JSON document, with its processors if the broker reports them; None if the
    group has no topology."""
    topology = group.topology
    if topology is None:
        return None
    out: dict[str, object] = {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": each.subtopology_id,
                "source_topics": list(each.source_topics),
                "repartition_sink_topics": list(each.repartition_sink_topics),
                "state_changelog_topics": [_topic(made) for made in each.state_changelog_topics],
                "repartition_source_topics": [_topic(made) for made in each.repartition_source_topics],
            }
            for each in _sorted_subtopologies(topology)
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


def _topic(topic: InternalTopic) -> dict[str, object]:
    return {
        "name": topic.name,
        "partitions": topic.partitions or None,
        "replication_factor": topic.replication_factor or None,
        "configs": dict(sorted(topic.configs.items())),
    }


def _node(node: TopologyNode) -> dict[str, object]:
    return {
        "name": node.name,
        "source_topics": list(node.source_topics),
        "sink_topic": node.sink_topic,
        "stores": list(node.stores),
        "successors": list(node.successors),
    }
