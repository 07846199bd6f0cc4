"""What only streams groups have: tasks with their copies, and the topology."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.client.admin.restore_progress import task_progress
from konvene.client.admin.streams_groups import StreamsGroupDescription, TopologyNode
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.tasks import Role, Task
from konvene.console.commits import Commit
from konvene.console.views.view import Row

__all__ = ["task_rows", "topology_rows"]

NODE_KINDS = {1: "source", 2: "processor", 3: "sink"}


def task_rows(
    group: StreamsGroupDescription, committed: Mapping[TopicPartition, Commit],
    ends: Mapping[TopicPartition, int], names: Mapping[str, str],
) -> dict[str, Row]:  # fmt: skip
    """Return a row for each task that any member has, or has as target.

    `committed` and `ends` are offsets of the partitions that the tasks read."""
    holders: dict[tuple[Role, Task], list[str]] = {}
    restore_lags: dict[Task, list[int]] = {}
    tasks: set[Task] = set()
    for m in group.members:
        for role, task in m.assignment.units():
            holders.setdefault((role, task), []).append(m.member_id)
            tasks.add(task)
        tasks.update(task for _, task in m.target.units())
        for progress in task_progress(m, group):
            if progress.role is not Role.ACTIVE and progress.lag is not None:
                restore_lags.setdefault(progress.task, []).append(progress.lag)
    reads = {s.subtopology_id: s.reads for s in group.topology.subtopologies} if group.topology else {}
    rows = {}
    for task in sorted(tasks, key=lambda t: t.sort_key):
        inputs = [TopicPartition(topic, task.partition) for topic in reads.get(task.subtopology, ())]
        lags = [max(ends[tp] - committed[tp].offset, 0) for tp in inputs if tp in ends and tp in committed]
        owner = next(iter(holders.get((Role.ACTIVE, task), ())), None)
        rows[str(task)] = {
            "name": str(task), "topic": task.subtopology, "partition": task.partition, "owner": owner,
            "owner_name": None if owner is None else names[owner], "lag": sum(lags) if lags else None,
            "standbys": [names[m] for m in holders.get((Role.STANDBY, task), ())],
            "warmups": [names[m] for m in holders.get((Role.WARMUP, task), ())],
            "restore_lag": max(restore_lags.get(task, ()), default=None),
        }  # fmt: skip
    return rows


def topology_rows(group: StreamsGroupDescription) -> dict[str, Row]:
    """Return a row for each subtopology, with its processors if the broker stores them (KIP-1331)."""
    if group.topology is None:
        return {}
    described = {} if group.description is None else {
        each.subtopology_id: each.nodes for each in group.description.subtopologies
    }  # fmt: skip
    tasks: dict[str, set[int]] = {}
    for m in group.members:
        for _, task in (*m.assignment.units(), *m.target.units()):
            tasks.setdefault(task.subtopology, set()).add(task.partition)
    return {
        each.subtopology_id: {
            "id": each.subtopology_id, "source_topics": list(each.source_topics),
            "sink_topics": list(each.repartition_sink_topics),
            "repartition": [topic.name for topic in each.repartition_source_topics],
            "changelogs": [topic.name for topic in each.state_changelog_topics],
            "tasks": len(tasks.get(each.subtopology_id, ())),
            "nodes": [_node(node) for node in described[each.subtopology_id]]
            if each.subtopology_id in described else None,
        }
        for each in group.topology.subtopologies
    }  # fmt: skip


def _node(node: TopologyNode) -> Row:
    return {
        "name": node.name, "kind": NODE_KINDS.get(node.kind, "processor"),
        "topics": [*node.source_topics, *([node.sink_topic] if node.sink_topic else [])],
        "stores": list(node.stores), "successors": list(node.successors),
    }  # fmt: skip
