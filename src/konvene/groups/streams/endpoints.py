"""The members' endpoints for interactive queries, with the partitions that can be queried at each.

A member gets the endpoints of all members whenever its endpoint epoch differs from the group's: after tasks
of a member with an endpoint moved, after an endpoint changed, and after a restart of the coordinator, which
counts from 0 again. Warm-up tasks are listed as standbys.
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
    """Return the endpoints of all members that have one; that of `new`, which sent the request, is the last.

    `replaced`: id of the static member that `new` replaces.
    """
    topology, group = configured.topology, decision.group
    if topology is None or not configured.tasks:
        return ()
    cached, topics, found = group.endpoints, decision.context.topics, []
    others = (m for name, m in group.members.items() if name not in (new.member_id, replaced))
    for member in (*others, new):
        if member.user_endpoint is None:
            continue
        last = cached.get(member.member_id)
        # Each change is sent to all members with all endpoints, so unchanged ones are cached.
        if last is None or last[0] is not member or last[1] is not configured or last[2] is not topics:
            entry = _endpoint_entry(member, topology, topics)
            if last is not None and last[3] == entry:
                entry = last[3]  # The same object, for callers that cache derived values by identity.
            last = cached[member.member_id] = member, configured, topics, entry
        found.append(last[3])
    if len(cached) > len(found):
        for departed in sorted(cached.keys() - group.members.keys() - {new.member_id}):
            del cached[departed]
    return tuple(found)


def _endpoint_entry(member: Member, topology: Topology, topics: Topics) -> EndpointToPartitions:
    assert member.user_endpoint is not None
    host, port = member.user_endpoint
    assigned = member.current.assigned
    copies = {
        name: tuple(sorted({*assigned.standby.get(name, ()), *assigned.warmup.get(name, ())}))
        for name in sorted({*assigned.standby, *assigned.warmup})
    }
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=_partitions(assigned.active, topology, topics),
        standby_partitions=_partitions(copies, topology, topics),
    )


def _partitions(tasks: Tasks | Epochs, topology: Topology, topics: Topics) -> tuple[TopicPartition, ...]:
    """Return the existing partitions that these tasks read, by topic."""
    found = []
    for name in sorted(tasks):
        for topic in sorted(
            set(sources(topology.subtopologies[name])) if name in topology.subtopologies else ()
        ):
            topic_image = topics.by_name.get(topic)
            partitions = tuple(
                p for p in sorted(tasks[name]) if topic_image is not None and p < topic_image.partitions
            )
            if partitions:
                found.append(TopicPartition(topic=topic, partitions=partitions))
    return tuple(found)
