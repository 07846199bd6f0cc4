"""Tasks as members of the classic protocol speak of them: what they say, and what they are told.

    a JoinGroup says                        and means
    partitions that are owned               active tasks, by the topology
    offset sums (user data, version 7+)     how far the state on the disk is; of active tasks nothing
    tasks (user data, versions 1 to 6)      nothing that counts: no offsets

    a SyncGroup tells                       for
    partitions, each with its task          active tasks
    standby tasks with their partitions     standby and warm-up tasks
    partitions by host                      members with an endpoint, of either protocol
    an error                                a missing source topic, or a shutdown that was asked for

Which copies a member has is not asked: the classic protocol does not tell those that it was given from those
that lie on its disk. It has what it was told to have, and gives up what it is told to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic.subscriptions import STREAM, Subscription, read_subscription, write_assignment
from konvene.groups.streams.classic.changelog_ends import as_far_behind
from konvene.groups.streams.classic.user_data import (
    NO_REBALANCE_MS,
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
    Task,
    TopicPartition,
    UserDataError,
    read_subscription_info,
    write_assignment_info,
    write_hosts,
)
from konvene.groups.streams.current_assignment import Epochs, Held
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.endpoints import told_endpoints
from konvene.groups.streams.group import NO_EPOCH, Member, Reported
from konvene.groups.streams.topology.configure import Status
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages import streams_group_heartbeat as wire
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

FIRST_VERSION_WITH_OFFSETS = 7

MOST_DIGITS = 9
"""Of a number of 32 bits, whatever its digits are."""

MISSING_SOURCE_TOPIC, SHUTDOWN_REQUESTED = 1, 4
"""Errors in user data."""


class Said(NamedTuple):
    """What a member says as it joins."""

    subscription: Subscription
    info: SubscriptionInfo

    @property
    def reports(self) -> bool:
        """Whether it says how far its tasks are."""
        return self.info.version >= FIRST_VERSION_WITH_OFFSETS


def read(metadata: bytes) -> Said:
    """Raises `UserDataError`."""
    subscription = read_subscription(metadata)
    if subscription is None:
        raise UserDataError("the subscription is malformed")
    return Said(subscription, read_subscription_info(subscription.user_data))


def read_or_refuse(metadata: bytes) -> Said:
    """Raises INCONSISTENT_GROUP_PROTOCOL."""
    try:
        return read(metadata)
    except UserDataError as unread:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL, str(unread)) from None


# --- what is said ----------------------------------------------------------------------------------


def owned_tasks(owned: Iterable[TopicPartition], topology: Topology) -> MemberAssignment:
    """The active tasks of these partitions. A task is owned as long as one of its partitions is."""
    found: dict[str, set[int]] = {}
    for topic, partition in owned:
        reader = topology.readers.get(topic)
        if reader is not None:
            found.setdefault(reader, set()).add(partition)
    return MemberAssignment({name: tuple(sorted(found[name])) for name in sorted(found)}, {}, {})


def reported(said: Said, known: Reported | None, assigned: Held, now_ms: int) -> Reported:
    """How far the member's tasks are. Where they end it does not say (`ends`).

    `assigned`: what it has been told to have so far."""
    offsets: dict[str, dict[int, int]] = {}
    for (name, partition), offset in said.info.offset_sums.items():
        if offset >= 0:
            offsets.setdefault(name, {})[partition] = offset
    knows_endpoints = NO_EPOCH if known is None else known.knows_endpoints
    ends = as_far_behind(offsets, known, assigned)
    return Reported(offsets, ends, now_ms, said.reports, knows_endpoints)


def said_tasks(said: Said) -> set[Task]:
    """The tasks of which the member says how far they are."""
    return {task for task, offset in said.info.offset_sums.items() if offset >= 0}


def can_be_told(topology: Topology) -> bool:
    """Whether the classic protocol has words for its tasks: there subtopologies are numbers."""
    return all(
        name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS for name in topology.subtopologies
    )


def read_topics(topology: Topology) -> frozenset[str]:
    """All that an application of this topology subscribes to."""
    return frozenset(topic for each in topology.in_hash_order for topic in sources(each))


# --- what is told ----------------------------------------------------------------------------------


def partitions_of(
    tasks: Tasks | Epochs, topology: Topology | None, topics: Topics
) -> list[tuple[TopicPartition, Task]]:
    """What these tasks read, by topic and partition, each with its task."""
    found: list[tuple[TopicPartition, Task]] = []
    for name in tasks:
        subtopology = topology.subtopologies.get(name) if topology is not None else None
        for topic in set(sources(subtopology)) if subtopology is not None else ():
            there = topics.by_name.get(topic)
            count = there.partitions if there is not None else 0
            found += [((topic, p), (name, p)) for p in tasks[name] if p < count]
    return sorted(found)


def told(
    step: Decision, member: Member, tasks: MemberAssignment, next_rebalance_ms: int = NO_REBALANCE_MS
) -> bytes:
    """What a member is told to have: partitions, and the user data in the version that it used itself."""
    assert member.classic is not None
    metadata = dict(member.classic.protocols)[STREAM]
    said, topics = read(metadata).info, step.context.topics
    version = said.version
    active = partitions_of(tasks.active, step.topology, topics)
    endpoints = _endpoints(step, member, said)
    info = AssignmentInfo(
        version=version,
        commonly_supported_version=version,
        active=tuple((task, partition) for partition, task in active),
        standby=_copies(tasks, step.topology, topics),
        error_code=_error(step),
        next_rebalance_ms=next_rebalance_ms,
    )
    by_topic: dict[str, tuple[int, ...]] = {}
    for (topic, partition), _ in active:
        by_topic[topic] = (*by_topic.get(topic, ()), partition)
    user_data = write_assignment_info(info, _hosts(step, version, endpoints))
    return write_assignment(by_topic.items(), metadata, user_data)


def _endpoints(
    step: Decision, member: Member, said: SubscriptionInfo
) -> tuple[wire.EndpointToPartitions, ...]:
    """Of everybody, or of nobody: a client that does not find its own among others joins again at once, and
    would for ever if its own has no place among them."""
    configured = step.soft.configured
    if configured is None or (said.user_endpoint and member.user_endpoint is None):
        return ()
    return told_endpoints(step, member, None, configured)


def _hosts(step: Decision, version: int, endpoints: tuple[wire.EndpointToPartitions, ...]) -> bytes:
    """Where all tasks are, as it is written. A thousand members hear of a thousand: it is written once."""
    known = step.group.hosts
    these = frozenset(map(id, endpoints))
    if version not in known or known[version][0] != these:
        active = _by_host((each.user_endpoint, each.active_partitions) for each in endpoints)
        standby = _by_host((each.user_endpoint, each.standby_partitions) for each in endpoints)
        info = AssignmentInfo(version, version, partitions_by_host=active, standby_partitions_by_host=standby)
        known[version] = these, endpoints, write_hosts(info)
    return known[version][2]


def _copies(
    tasks: MemberAssignment, topology: Topology | None, topics: Topics
) -> dict[Task, tuple[TopicPartition, ...]]:
    found: dict[Task, tuple[TopicPartition, ...]] = {}
    for role in (tasks.standby, tasks.warmup):
        for partition, task in partitions_of(role, topology, topics):
            found[task] = (*found.get(task, ()), partition)
    return found


def _by_host(
    told: Iterable[tuple[wire.Endpoint, Iterable[wire.TopicPartition]]],
) -> dict[HostInfo, tuple[TopicPartition, ...]]:
    """The threads of a process have one endpoint."""
    found: dict[HostInfo, set[TopicPartition]] = {}
    for endpoint, rows in told:
        there = found.setdefault((endpoint.host, endpoint.port), set())
        there.update((row.topic, partition) for row in rows for partition in row.partitions)
    return {host: tuple(sorted(there)) for host, there in found.items()}


def _error(step: Decision) -> int:
    if step.soft.shutdown is not None:
        return SHUTDOWN_REQUESTED
    failure = step.soft.configured.failure if step.soft.configured is not None else None
    return MISSING_SOURCE_TOPIC if failure is not None and failure[0] is Status.MISSING_SOURCE_TOPICS else 0
