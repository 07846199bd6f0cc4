"""The partitions at each member's endpoint, for interactive queries.

Everybody is told everything whenever the epoch that a member has seen is not the group's: when tasks of a
member with an endpoint have moved, when an endpoint is another one, and after a restart of the coordinator,
which counts from 0 again. Warm-ups are standbys to a client.
"""

from __future__ import annotations

from konvene.groups.assignors.tasks.contract import Tasks
from konvene.groups.streams.current_assignment import Epochs
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Member
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition
from konvene.shard.image import Topics


def endpoint_partitions(
    decision: Decision, new: Member, replaced: str | None, configured: ConfiguredTopology
) -> tuple[EndpointToPartitions, ...]:
    """Return the endpoints of all members that have one, the member at hand last."""
    topology, group = configured.topology, decision.group
    if topology is None or not configured.tasks:
        return ()
    known, topics, found = group.endpoints, decision.context.topics, []
    others = (m for name, m in group.members.items() if name not in (new.member_id, replaced))
    for member in (*others, new):
        if member.user_endpoint is None:
            continue
        last = known.get(member.member_id)
        # Each change is sent to all members with all endpoints, so unchanged ones are cached.
        if last is None or last[0] is not member or last[1] is not configured or last[2] is not topics:
            told = _told(member, topology, topics)
            if last is not None and last[3] == told:
                told = last[3]  # The same value for who remembers what follows from it.
            last = known[member.member_id] = member, configured, topics, told
        found.append(last[3])
    if len(known) > len(found):
        for gone in sorted(known.keys() - group.members.keys() - {new.member_id}):
            del known[gone]
    return tuple(found)


def _told(member: Member, topology: Topology, topics: Topics) -> EndpointToPartitions:
    assert member.user_endpoint is not None
    host, port = member.user_endpoint
    has = member.current.assigned
    copies = {
        name: tuple(sorted({*has.standby.get(name, ()), *has.warmup.get(name, ())}))
        for name in sorted({*has.standby, *has.warmup})
    }
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=_partitions(has.active, topology, topics),
        standby_partitions=_partitions(copies, topology, topics),
    )


def _partitions(tasks: Tasks | Epochs, topology: Topology, topics: Topics) -> tuple[TopicPartition, ...]:
    """Return the partitions of a task; a source with fewer partitions than tasks has none for the last
    ones."""
    found = []
    for name in sorted(tasks):
        for topic in sorted(
            set(sources(topology.subtopologies[name])) if name in topology.subtopologies else ()
        ):
            there = topics.by_name.get(topic)
            partitions = tuple(p for p in sorted(tasks[name]) if there is not None and p < there.partitions)
            if partitions:
                found.append(TopicPartition(topic=topic, partitions=partitions))
    return tuple(found)
