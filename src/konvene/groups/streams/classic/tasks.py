"""Tasks in the classic protocol: what a JoinGroup reports, and how a SyncGroup encodes an assignment.

    a field of JoinGroup                    means
    owned partitions                        active tasks, by the topology
    offset sums (user data, version 7+)     offsets of the state on disk, except of active tasks
    tasks (user data, versions 1 to 6)      ignored: no offsets

    a field of SyncGroup                    has
    partitions, each with its task          active tasks
    standby tasks with their partitions     standby and warm-up tasks
    partitions by host                      members with an endpoint, of either protocol
    an error                                a missing source topic, or a requested shutdown

The standbys and warm-ups of a member are not taken from its JoinGroup, since the classic protocol does not
distinguish assigned copies from earlier ones that are still on its disk. A member has the copies of its last
assignment, and drops them when the next one omits them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic.subscriptions import STREAM, Subscription, read_subscription, write_assignment
from konvene.groups.streams.classic.changelog_ends import estimated_ends
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
from konvene.groups.streams.current_assignment import Epochs, OwnedTasks
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.endpoints import endpoint_partitions
from konvene.groups.streams.group import NO_EPOCH, Member, Reported
from konvene.groups.streams.topology.configure import Status
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages import streams_group_heartbeat as wire
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

FIRST_VERSION_WITH_OFFSETS = 7

MAX_DIGITS = 9
"""Maximum length of a subtopology number: any such number fits 32 bits."""

MISSING_SOURCE_TOPIC, SHUTDOWN_REQUESTED = 1, 4
"""Error codes in user data."""


class JoinMetadata(NamedTuple):
    """A member's decoded JoinGroup metadata: its subscription and its user data."""

    subscription: Subscription
    info: SubscriptionInfo

    @property
    def reports(self) -> bool:
        """Return whether the member reports the offsets of its tasks."""
        return self.info.version >= FIRST_VERSION_WITH_OFFSETS


def read_metadata(metadata: bytes) -> JoinMetadata:
    """Decode the metadata of the protocol `stream` in a JoinGroup request. Raises `UserDataError`."""
    subscription = read_subscription(metadata)
    if subscription is None:
        raise UserDataError("the subscription is malformed")
    return JoinMetadata(subscription, read_subscription_info(subscription.user_data))


def read_metadata_or_reject(metadata: bytes) -> JoinMetadata:
    """Decode the metadata like `read_metadata`, but raise INCONSISTENT_GROUP_PROTOCOL if it is malformed."""
    try:
        return read_metadata(metadata)
    except UserDataError as unread:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL, str(unread)) from None


# --- JoinGroup -------------------------------------------------------------------------------------


def owned_tasks(owned: Iterable[TopicPartition], topology: Topology) -> MemberAssignment:
    """Return the active tasks that read any of these partitions, which a member owns."""
    found: dict[str, set[int]] = {}
    for topic, partition in owned:
        reader = topology.readers.get(topic)
        if reader is not None:
            found.setdefault(reader, set()).add(partition)
    return MemberAssignment({name: tuple(sorted(found[name])) for name in sorted(found)}, {}, {})


def new_report(metadata: JoinMetadata, known: Reported | None, assigned: OwnedTasks, now_ms: int) -> Reported:
    """Return the report of the member's task offsets, with estimated end offsets, which it does not send.

    `known`: the report before. `assigned`: the member's tasks before this join.
    """
    offsets: dict[str, dict[int, int]] = {}
    for (name, partition), offset in metadata.info.offset_sums.items():
        if offset >= 0:
            offsets.setdefault(name, {})[partition] = offset
    sent_endpoint_epoch = NO_EPOCH if known is None else known.sent_endpoint_epoch
    ends = estimated_ends(offsets, known, assigned)
    return Reported(offsets, ends, now_ms, metadata.reports, sent_endpoint_epoch)


def tasks_with_offsets(metadata: JoinMetadata) -> set[Task]:
    """Return the tasks whose offsets the member reports."""
    return {task for task, offset in metadata.info.offset_sums.items() if offset >= 0}


def has_numeric_subtopologies(topology: Topology) -> bool:
    """Return whether all subtopology ids are numbers, as the classic protocol requires."""
    return all(
        name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS for name in topology.subtopologies
    )


def subscribed_topics(topology: Topology) -> frozenset[str]:
    """Return all topics that an application of this topology subscribes to."""
    return frozenset(topic for each in topology.in_hash_order for topic in sources(each))


# --- SyncGroup -------------------------------------------------------------------------------------


def partitions_of(
    tasks: Tasks | Epochs, topology: Topology | None, topics: Topics
) -> list[tuple[TopicPartition, Task]]:
    """Return the existing partitions that these tasks read, sorted, each with its task."""
    found: list[tuple[TopicPartition, Task]] = []
    for name in tasks:
        subtopology = topology.subtopologies.get(name) if topology is not None else None
        for topic in set(sources(subtopology)) if subtopology is not None else ():
            image = topics.by_name.get(topic)
            count = image.partitions if image is not None else 0
            found += [((topic, p), (name, p)) for p in tasks[name] if p < count]
    return sorted(found)


def encode_assignment(
    decision: Decision, member: Member, tasks: MemberAssignment, next_rebalance_ms: int = NO_REBALANCE_MS
) -> bytes:
    """Return a member's encoded assignment of these tasks, with user data in the member's own version."""
    assert member.classic is not None
    protocol_metadata = dict(member.classic.protocols)[STREAM]
    info, topics = read_metadata(protocol_metadata).info, decision.context.topics
    version = info.version
    active = partitions_of(tasks.active, decision.topology, topics)
    endpoints = _endpoints(decision, member, info)
    assignment = AssignmentInfo(
        version=version,
        commonly_supported_version=version,
        active=tuple((task, partition) for partition, task in active),
        standby=_copies(tasks, decision.topology, topics),
        error_code=_error(decision),
        next_rebalance_ms=next_rebalance_ms,
    )
    by_topic: dict[str, tuple[int, ...]] = {}
    for (topic, partition), _ in active:
        by_topic[topic] = (*by_topic.get(topic, ()), partition)
    user_data = write_assignment_info(assignment, _hosts(decision, version, endpoints))
    return write_assignment(by_topic.items(), protocol_metadata, user_data)


def _endpoints(
    decision: Decision, member: Member, info: SubscriptionInfo
) -> tuple[wire.EndpointToPartitions, ...]:
    """Return the endpoints of all members; none if the member's own endpoint is malformed.

    A client that gets endpoints without its own would rejoin at once, again and again.
    """
    configured = decision.soft.configured
    if configured is None or (info.user_endpoint and member.user_endpoint is None):
        return ()
    return endpoint_partitions(decision, member, None, configured)


def _hosts(decision: Decision, version: int, endpoints: tuple[wire.EndpointToPartitions, ...]) -> bytes:
    """Return the encoded partitions by host, from a cache: they are the same for all members of a version."""
    known = decision.group.hosts
    identities = frozenset(map(id, endpoints))
    if version not in known or known[version][0] != identities:
        active = _by_host((each.user_endpoint, each.active_partitions) for each in endpoints)
        standby = _by_host((each.user_endpoint, each.standby_partitions) for each in endpoints)
        info = AssignmentInfo(version, version, partitions_by_host=active, standby_partitions_by_host=standby)
        known[version] = identities, endpoints, write_hosts(info)
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
    endpoints: Iterable[tuple[wire.Endpoint, Iterable[wire.TopicPartition]]],
) -> dict[HostInfo, tuple[TopicPartition, ...]]:
    """Return the partitions by host; those of members with the same endpoint are merged."""
    found: dict[HostInfo, set[TopicPartition]] = {}
    for endpoint, rows in endpoints:
        partitions = found.setdefault((endpoint.host, endpoint.port), set())
        partitions.update((row.topic, partition) for row in rows for partition in row.partitions)
    return {host: tuple(sorted(partitions)) for host, partitions in found.items()}


def _error(decision: Decision) -> int:
    if decision.soft.shutdown is not None:
        return SHUTDOWN_REQUESTED
    failure = decision.soft.configured.failure if decision.soft.configured is not None else None
    return MISSING_SOURCE_TOPIC if failure is not None and failure[0] is Status.MISSING_SOURCE_TOPICS else 0
