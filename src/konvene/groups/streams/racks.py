"""What streams groups have to do with places: racks of tasks, tags that spread standbys, and what it costs.

    racks of a task   those that have a replica of every partition which it reads, of topics from outside and
                      for repartitioning. A partition of which no rack is known says nothing. Changelogs do
                      not count: they are read by who begins a task elsewhere, and then no more
    tags              `highly_available` looks at them by itself. `sticky` is Kafka's, and does not: in mode
                      `kip` its standbys change places afterwards (`task_spread`). In mode `kafka` they stay
    missing tags      members are told (status 6), in either mode in Kafka's words. They get standbys as well

The cost is that of what members are meant to have, by what they say of themselves now.
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

__all__ = ["described", "group_cost", "racks_of", "spreading"]

RackSets = tuple[frozenset[str], ...]


def racks_of(topology: Topology, subtopology_id: str, count: int, topics: Topics) -> RackSets:
    """For each task of a subtopology the racks that have all that it reads; empty where none is known."""
    read = [
        topics.by_name[name]
        for name in sources(topology.subtopologies[subtopology_id])
        if name in topics.by_name
    ]
    known = [racks for racks in (topic.rack_sets for topic in read) if racks]
    if not known:
        return ()
    found = []
    for partition in range(count):
        each = [racks[partition] for racks in known if partition < len(racks) and racks[partition]]
        found.append(frozenset.intersection(*each) if each else frozenset())
    return tuple(found)


def described(topology: Topology, tasks: Mapping[str, int], topics: Topics) -> TopologyDescriber:
    """The tasks there are, for an assignor. `tasks`: how many, by subtopology."""
    return TopologyDescriber(
        {
            name: Subtopology(count, topology.is_stateful(name), racks_of(topology, name, count, topics))
            for name, count in tasks.items()
        }
    )


def spreading(assignor: TaskAssignor, configs: AssignmentConfigs, mode: str) -> TaskAssignor:
    """The assignor, and after it an exchange of standbys, where it does not look at tags and they matter."""
    if mode != KIP or not configs.rack_aware_assignment_tags or assignor.assign is not sticky.assign:
        return assignor

    def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
        return spread(spec, topology, assignor.assign(spec, topology))

    return TaskAssignor(assignor.name, assign)


def group_cost(group: StreamsGroup) -> Cost | None:
    """What the group's target costs by tags and racks; None where its tasks are not known, or no place is."""
    configured, topics = group.soft.configured, group.soft.seen
    if group.topology is None or topics is None or configured is None or not configured.is_ready:
        return None
    topology = described(configured.topology or group.topology, configured.tasks, topics)
    members = {
        name: AssignmentMemberSpec(
            member.process_id, rack_id=member.rack_id, client_tags=dict(member.client_tags)
        )
        for name, member in group.members.items()
    }
    spec = GroupSpec(members, read_configs(group.assignment_configs))
    return None if Racks.of(spec, topology).is_trivial else cost(spec, topology, group.targets)
