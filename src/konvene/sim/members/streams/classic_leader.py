"""Task assignment by the leader of a classic Kafka Streams group.

A small assignor with the essential rules. A task stays with its owner while no member has too many. A task
that moves is assigned to no member until its owner has revoked it, if the group is cooperative. Stateful
tasks have standbys on other processes. Missing internal topics are created first. If a source topic is
missing, all members receive that error and no tasks; if topics are not copartitioned, they receive no
tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.client.consumer.protocol import Subscription
from konvene.client.streams.tasks import Topology as Application
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    SubscriptionInfo,
    Task,
    UserDataError,
    read_subscription_info,
)
from konvene.groups.streams.topology.configure import ConfiguredTopology, Status, configure
from konvene.groups.streams.topology.topology import Topology, sources

if TYPE_CHECKING:
    from konvene.sim.world.world import World

MISSING_SOURCE, SHUTDOWN = 1, 4
"""Error codes in the user data of assignments and subscriptions."""

TopicPartition = tuple[str, int]


class MemberInfo(NamedTuple):
    """What the group's leader knows of a member: its subscription, with the decoded user data."""

    subscription: Subscription
    info: SubscriptionInfo


def read_members(subscriptions: Mapping[str, Subscription]) -> dict[str, MemberInfo]:
    """Decode the members' subscriptions; members whose user data is malformed are left out."""
    found = {}
    for member_id, subscription in subscriptions.items():
        try:
            found[member_id] = MemberInfo(subscription, read_subscription_info(subscription.user_data or b""))
        except UserDataError:
            continue
    return found


def assign_tasks(
    world: World, application: Application, members: Mapping[str, MemberInfo], standbys: int
) -> dict[str, AssignmentInfo]:
    """Return the user data of each member's assignment, with `standbys` standbys per stateful task.

    Its version is the latest that all members support. It has an error code and no tasks if a source topic
    is missing or a member requested a shutdown."""
    topology = Topology.from_request(application.to_message())
    configured = _create_internal_topics(world, topology)
    version = min(each.info.version for each in members.values())
    error = SHUTDOWN if any(each.info.error_code == SHUTDOWN for each in members.values()) else 0
    if configured.failure is not None and configured.failure.status is Status.MISSING_SOURCE_TOPICS:
        error = error or MISSING_SOURCE
    active: dict[str, list[Task]] = {member_id: [] for member_id in members}
    standbys_by_member: dict[str, list[Task]] = {member_id: [] for member_id in members}
    if configured.is_ready and not error:
        active = _assign_active(topology, configured, members)
        standbys_by_member = _assign_standbys(topology, members, active, standbys)

    def reads(task: Task) -> list[TopicPartition]:
        known = world.topics.by_name
        names = sorted(set(sources(topology.subtopologies[task[0]])))
        return [(name, task[1]) for name in names if task[1] < known[name].partitions]

    assignments = {}
    for member_id in members:
        rows = sorted((partition, task) for task in active[member_id] for partition in reads(task))
        assignments[member_id] = AssignmentInfo(
            version,
            version,
            tuple((task, partition) for partition, task in rows),
            {task: tuple(reads(task)) for task in standbys_by_member[member_id]},
            error_code=error,
        )
    return assignments


def _create_internal_topics(world: World, topology: Topology) -> ConfiguredTopology:
    """Create missing internal topics; return the topology with the partition counts of its topics."""
    found = configure(topology, dict(world.partition_counts()))
    for topic in found.missing.values():
        if topic.name not in world.topics.by_name:
            world.set_topic(topic.name, topic.partitions)
    return configure(topology, dict(world.partition_counts())) if found.missing else found


def _assign_active(
    topology: Topology, configured: ConfiguredTopology, members: Mapping[str, MemberInfo]
) -> dict[str, list[Task]]:
    tasks = [(name, p) for name, count in sorted(configured.tasks.items()) for p in range(count)]
    owners: dict[Task, str] = {}
    for member_id, each in sorted(members.items(), key=lambda pair: pair[1].subscription.generation):
        for topic, partition in each.subscription.owned:
            reader = topology.readers.get(topic)
            if reader is not None:
                owners[reader, partition] = member_id
    capacity = -(-len(tasks) // len(members))
    assigned: dict[str, list[Task]] = {member_id: [] for member_id in members}
    for task in tasks:
        if task in owners and len(assigned[owners[task]]) < capacity:
            assigned[owners[task]].append(task)
    kept = {task for tasks_of_member in assigned.values() for task in tasks_of_member}
    awaited = dict.fromkeys(assigned, 0)
    for task in tasks:
        if task in kept:
            continue
        least_loaded = min(
            assigned, key=lambda member_id: (len(assigned[member_id]) + awaited[member_id], member_id)
        )
        if task in owners:
            awaited[least_loaded] += 1  # Its owner revokes it first, which leads to another generation.
        else:
            assigned[least_loaded].append(task)
    return assigned


def _assign_standbys(
    topology: Topology, members: Mapping[str, MemberInfo], active: Mapping[str, list[Task]], standbys: int
) -> dict[str, list[Task]]:
    standbys_by_member: dict[str, list[Task]] = {member_id: [] for member_id in members}
    for owner, tasks in sorted(active.items()):
        for task in tasks:
            used_processes = {members[owner].info.process_id}
            for _ in range(standbys if topology.is_stateful(task[0]) else 0):
                others = [m for m, each in members.items() if each.info.process_id not in used_processes]
                if others:
                    least_loaded = min(
                        others, key=lambda member_id: (len(standbys_by_member[member_id]), member_id)
                    )
                    standbys_by_member[least_loaded].append(task)
                    used_processes.add(members[least_loaded].info.process_id)
    return standbys_by_member
