"""Racks of tasks, client tags, and the cost of a streams group's target by both.

    racks of a task   the racks with a replica of every partition that the task reads, from source topics and
                      repartition topics. Partitions of unknown racks are ignored. Changelogs do not count:
                      they are read only once, while a task restores
    client tags       `highly_available` considers them. `sticky` is Kafka's and ignores them; in mode `kip`
                      its standbys are exchanged afterwards (`assignors.tasks.spread`), in mode `kafka` not
    missing tags      members without a configured tag get status MISSING_CLIENT_TAGS, and standbys all the
                      same, in both modes

The cost is that of the target assignment, with the members' current racks and tags.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.groups.assignors.sticky import assignor as sticky
from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    Subtopology,
    TaskAssignor,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.racks import Cost, Racks, cost
from konvene.groups.assignors.tasks.spread import spread
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.shard.image import Topics

__all__ = ["describe_topology", "group_cost", "racks_of", "with_standby_exchange"]

RackSets = tuple[frozenset[str], ...]


def racks_of(topology: Topology, subtopology_id: str, count: int, topics: Topics) -> RackSets:
    """Return for each task of a subtopology the racks that have all partitions that it reads.

    `count`: number of tasks. The result is empty if all racks are unknown.
    """
    source_topics = [
        topics.by_name[name]
        for name in sources(topology.subtopologies[subtopology_id])
        if name in topics.by_name
    ]
    known = [racks for racks in (topic.rack_sets for topic in source_topics) if racks]
    if not known:
        return ()
    found = []
    for partition in range(count):
        rack_sets = [racks[partition] for racks in known if partition < len(racks) and racks[partition]]
        found.append(frozenset.intersection(*rack_sets) if rack_sets else frozenset())
    return tuple(found)


def describe_topology(topology: Topology, tasks: Mapping[str, int], topics: Topics) -> TopologyDescriber:
    """Return the topology as the input of an assignor. `tasks`: number of tasks by subtopology."""
    return TopologyDescriber(
        {
            name: Subtopology(count, topology.is_stateful(name), racks_of(topology, name, count, topics))
            for name, count in tasks.items()
        }
    )


def with_standby_exchange(assignor: TaskAssignor, configs: AssignmentConfigs, mode: str) -> TaskAssignor:
    """Return an assignor that exchanges standbys by client tags after `assignor`.

    Return `assignor` itself if it is not `sticky`, no tags are configured, or the mode is not `kip`.
    """
    if mode != KIP or not configs.rack_aware_assignment_tags or assignor.assign is not sticky.assign:
        return assignor

    def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
        return spread(spec, topology, assignor.assign(spec, topology))

    return TaskAssignor(assignor.name, assign)


def group_cost(group: StreamsGroup) -> Cost | None:
    """Return the cost of the group's target by tags and racks.

    Return None if the topology is not ready, or if neither tags nor racks are known.
    """
    configured, topics = group.soft.configured, group.soft.hashed_topics
    if group.topology is None or topics is None or configured is None or not configured.is_ready:
        return None
    topology = describe_topology(configured.topology or group.topology, configured.tasks, topics)
    members = {
        name: AssignmentMemberSpec(
            member.process_id, rack_id=member.rack_id, client_tags=dict(member.client_tags)
        )
        for name, member in group.members.items()
    }
    spec = GroupSpec(members, read_configs(group.assignment_configs))
    return None if Racks.of(spec, topology).is_trivial else cost(spec, topology, group.targets)
