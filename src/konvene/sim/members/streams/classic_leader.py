"""What the leader of a classic group of Kafka Streams does: it gives tasks to members.

A small assignor with the rules that count. A task stays with who has it while nobody has too many; where it
is to go to somebody else, it is given to nobody before its owner has given it up, if that is cooperative.
Tasks with state have standbys at other processes. Internal topics that are missing it makes first; where a
source is missing, all hear of it and have nothing, and where topics do not fit they have nothing.
"""

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
"""Errors in user data."""

TopicPartition = tuple[str, int]


class Led(NamedTuple):
    """A member, as its leader sees it."""

    subscription: Subscription
    info: SubscriptionInfo


def led(subscriptions: Mapping[str, Subscription]) -> dict[str, Led]:
    """The members that can be read; the others have nothing."""
    found = {}
    for member_id, said in subscriptions.items():
        try:
            found[member_id] = Led(said, read_subscription_info(said.user_data or b""))
        except UserDataError:
            continue
    return found


def lead(
    world: World, application: Application, members: Mapping[str, Led], standbys: int
) -> dict[str, AssignmentInfo]:
    """What each member is told, in the latest version that all of them know."""
    topology = Topology.from_request(application.to_message())
    configured = _with_topics(world, topology)
    version = min(each.info.version for each in members.values())
    error = SHUTDOWN if any(each.info.error_code == SHUTDOWN for each in members.values()) else 0
    if configured.failure is not None and configured.failure.status is Status.MISSING_SOURCE_TOPICS:
        error = error or MISSING_SOURCE
    active: dict[str, list[Task]] = {member_id: [] for member_id in members}
    copies: dict[str, list[Task]] = {member_id: [] for member_id in members}
    if configured.is_ready and not error:
        active = _active(topology, configured, members)
        copies = _copies(topology, members, active, standbys)

    def reads(task: Task) -> list[TopicPartition]:
        known = world.topics.by_name
        names = sorted(set(sources(topology.subtopologies[task[0]])))
        return [(name, task[1]) for name in names if task[1] < known[name].partitions]

    told = {}
    for member_id in members:
        rows = sorted((partition, task) for task in active[member_id] for partition in reads(task))
        told[member_id] = AssignmentInfo(
            version,
            version,
            tuple((task, partition) for partition, task in rows),
            {task: tuple(reads(task)) for task in copies[member_id]},
            error_code=error,
        )
    return told


def _with_topics(world: World, topology: Topology) -> ConfiguredTopology:
    """Internal topics that are missing are made first."""
    found = configure(topology, dict(world.partition_counts()))
    for topic in found.missing.values():
        if topic.name not in world.topics.by_name:
            world.set_topic(topic.name, topic.partitions)
    return configure(topology, dict(world.partition_counts())) if found.missing else found


def _active(
    topology: Topology, configured: ConfiguredTopology, members: Mapping[str, Led]
) -> dict[str, list[Task]]:
    tasks = [(name, p) for name, count in sorted(configured.tasks.items()) for p in range(count)]
    owners: dict[Task, str] = {}
    for member_id, each in sorted(members.items(), key=lambda pair: pair[1].subscription.generation):
        for topic, partition in each.subscription.owned:
            reader = topology.readers.get(topic)
            if reader is not None:
                owners[reader, partition] = member_id
    most = -(-len(tasks) // len(members))
    given: dict[str, list[Task]] = {member_id: [] for member_id in members}
    for task in tasks:
        if task in owners and len(given[owners[task]]) < most:
            given[owners[task]].append(task)
    kept = {task for some in given.values() for task in some}
    wanted = dict.fromkeys(given, 0)
    for task in tasks:
        if task in kept:
            continue
        least = min(given, key=lambda member_id: (len(given[member_id]) + wanted[member_id], member_id))
        if task in owners:
            wanted[least] += 1  # Its owner gives it up first, and then there is another generation.
        else:
            given[least].append(task)
    return given


def _copies(
    topology: Topology, members: Mapping[str, Led], active: Mapping[str, list[Task]], standbys: int
) -> dict[str, list[Task]]:
    copies: dict[str, list[Task]] = {member_id: [] for member_id in members}
    for owner, tasks in sorted(active.items()):
        for task in tasks:
            taken = {members[owner].info.process_id}
            for _ in range(standbys if topology.is_stateful(task[0]) else 0):
                others = [m for m, each in members.items() if each.info.process_id not in taken]
                if others:
                    least = min(others, key=lambda member_id: (len(copies[member_id]), member_id))
                    copies[least].append(task)
                    taken.add(members[least].info.process_id)
    return copies
