"""When the groups of a simulated world are stable: the conditions of the liveness invariants.

A group is stable if all live clients are its members in one generation or epoch, and every partition or task
has exactly one owner that runs it. `CONDITIONS` has a function for each class of group. This module has no
`KINDS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import State as ConsumerState
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import State as StreamsState
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, Status, configure
from konvene.groups.streams.topology.expressions import expand_expressions
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.sim.invariants.streams.state import matched_topics
from konvene.sim.members import runs_applications
from konvene.sim.members.streams.application import Application
from konvene.sim.world.event import MODERN_GROUP_TYPES
from konvene.sim.world.faults import SECRET

if TYPE_CHECKING:
    from konvene.sim.invariants.offset_oracle import TopicPartition
    from konvene.sim.members.member import Member
    from konvene.sim.world.world import World

COOPERATIVE = "cooperative-sticky"
MAX_REFRESH_MS = 30_000
"""If regular expressions are resolved at longer intervals, their matches may include deleted topics."""


def members_by_group(world: World) -> dict[str, list[Member]]:
    """Return the live members of each group."""
    groups: dict[str, list[Member]] = {}
    for member in world.live_members():
        groups.setdefault(member.group, []).append(member)
    return groups


def is_active(world: World) -> bool:
    """Return True if the coordinator has loaded its log."""
    return world.runtime.coordinator.state == "active"


def is_stable(world: World) -> bool:
    """Return True if the coordinator is active and all groups with live members are stable."""
    return is_active(world) and all(
        _is_group_stable(world, name, members) for name, members in members_by_group(world).items()
    )


def _is_group_stable(world: World, name: str, members: list[Member]) -> bool:
    group = world.runtime.core.groups.get(name)
    if not isinstance(group, MODERN_GROUP_TYPES):
        group = world.group(name)
    return CONDITIONS[type(group)](world, group, members)


# --- classic groups ----------------------------------------------------------------------------------


def _is_classic_stable(world: World, group: ClassicGroup, members: list[Member]) -> bool:
    if group.state is not State.STABLE or len(group.members) != len(members):
        return False
    if not all(m.is_stable and m.member_id in group.members and m.epoch == group.generation for m in members):
        return False
    if runs_applications(world.kinds):
        return _are_applications_assigned(world, members)
    owned = {tp for member in members for tp in member.owned}
    topics = {topic for member in members for topic in member.topics}
    exclusive = sum(len(m.owned) for m in members) == len(owned)
    return exclusive and (owned == _partitions_of(world, topics) or _may_be_unassigned(world, members))


def _are_applications_assigned(world: World, members: list[Member]) -> bool:
    """Return True if each task of the topology runs once; or if the partition counts of its topics do not
    match, and nothing runs."""
    owned = [tp for member in members for tp in member.owned]
    if len(owned) != len(set(owned)):
        return False
    sent = [member.topology.to_message() for member in members if isinstance(member, Application)]
    counts = dict(world.partition_counts())
    configured = [configure(Topology.from_request(each), counts) for each in dict.fromkeys(sent)]
    if _may_be_unassigned(world, members) or len(configured) != 1 or not configured[0].is_ready:
        return True
    topology = configured[0].topology
    return topology is not None and set(owned) == _source_partitions(configured[0], topology, counts)


def _may_be_unassigned(world: World, members: list[Member]) -> bool:
    """Return True if partitions may stay unassigned. In Kafka too a returning static member gets the current
    assignment. Partitions then lack an owner until the next rebalance if the leader was absent when the
    topics changed, or if a cooperative member revoked them and stopped before it rejoined."""
    static = any(getattr(m, "instance_id", None) is not None for m in members)
    options = world.options
    subscriptions_change = options["varied"] or options.faults.get("resubscribe")
    return static and bool(world.topic_changes or subscriptions_change or options["assignor"] == COOPERATIVE)


# --- consumer groups ---------------------------------------------------------------------------------


def _is_consumer_stable(world: World, group: ConsumerGroup, members: list[Member]) -> bool:
    if group.state is not ConsumerState.STABLE or group.members.keys() != {m.member_id for m in members}:
        return False
    if not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    if not all(expression in group.regexes for expression in group.regex_users):
        return False
    hostile = world.options["hostile"]
    if not hostile and not all(_is_subscription_resolved(world, group, m) for m in members):
        return False  # The next resolution of the expressions moves the epoch.
    owned = [tp for member in members for tp in member.owned]
    topics = {topic for member in members for topic in readable_topics(world, member)}
    if hostile:
        topics = group.topics  # A hostile client may have subscribed in a member's name.
    return len(owned) == len(set(owned)) and set(owned) == _partitions_of(world, topics)


def _is_subscription_resolved(world: World, group: ConsumerGroup, member: Member) -> bool:
    """Return True if the group knows which topics the member reads. The name of a deleted topic may remain
    until the next resolution."""
    resolved = group.topics_of(group.members[member.member_id])
    readable = readable_topics(world, member)
    if world.config["group.consumer.regex.refresh.interval.ms"] > MAX_REFRESH_MS:
        resolved = resolved & (readable | world.topics.by_name.keys())
    return resolved == readable


def readable_topics(world: World, member: Member) -> set[str]:
    """Return the topics that a member subscribes to, by name or by a regular expression, which matches only
    topics that it is authorized to describe."""
    expression = getattr(member, "regex", "")
    topics = set(member.topics)
    if expression:
        topics |= {
            name
            for name in world.topics.by_name
            if not name.startswith(SECRET) and re.fullmatch(expression, name)
        }
    return topics


# --- streams groups ----------------------------------------------------------------------------------


def _is_streams_stable(world: World, group: StreamsGroup, members: list[Member]) -> bool:
    """Return True if each task runs once and is restored; or if the topology is not ready and nothing runs.

    In mode `kip` members with an older topology keep their tasks if the member that sent the next topology
    has left."""
    if group.topology is None or group.members.keys() != {m.member_id for m in members}:
        return False
    if group.epoch > group.assignment_epoch:
        return False
    if not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    counts = dict(world.partition_counts())
    mode: str = world.config["konvene.streams.mode"]
    matches = matched_topics(group, world.topics)
    if matches is None:
        return False
    configured = configure(group.topology, counts, mode, matches)
    failure = configured.failure
    if failure is not None and failure.status is not Status.INCORRECTLY_PARTITIONED_TOPICS:
        return False
    ready = configured.is_ready
    owned = [tp for member in members for tp in member.owned]
    expanded = expand_expressions(group.topology, matches)
    expected = _source_partitions(configured, expanded, counts) if ready else set[tuple[str, int]]()
    state = StreamsState.STABLE if ready else StreamsState.NOT_READY
    if group.state is not state or len(owned) != len(set(owned)):
        return False
    stale = [m for m in group.members.values() if m.topology_epoch < group.topology.epoch]
    if mode == KIP and stale:  # Only a hostile client sends the next topology and leaves.
        all_stale = len(stale) == len(group.members)
        return bool(world.options["hostile"]) and (all_stale or set(owned) == expected)
    balanced = not ready or _are_tasks_balanced(world, group)
    return set(owned) == expected and not group.warmup and balanced


def _are_tasks_balanced(world: World, group: StreamsGroup) -> bool:
    """Return True if moving a task to another process would not improve the balance of active tasks.

    Also return True if warm-ups are not used, no task is stateful, or not all members report offsets."""
    members = group.members
    warmups: int = world.config["group.streams.num.warmup.replicas"]
    is_stateful = group.topology is not None and any(
        map(group.topology.is_stateful, group.topology.subtopologies)
    )
    all_report = all((report := group.reported.get(i)) and report.reports for i in members)
    if not warmups or not is_stateful or not all_report:
        return True
    threads = Counter(m.process_id for m in members.values())
    active = Counter(dict.fromkeys(threads, 0))
    for m in members.values():
        active[m.process_id] += sum(map(len, m.current.assigned.active.values()))
    return all(
        active[one] * threads[two] <= threads[one] * (active[two] + 1) for one in threads for two in threads
    )


# --- share groups ------------------------------------------------------------------------------------


def _is_share_stable(world: World, group: ShareGroup, members: list[Member]) -> bool:
    if group.epoch > group.assignment_epoch or group.members.keys() != {m.member_id for m in members}:
        return False
    if not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    names = {topic for member in members for topic in member.topics} & world.topics.by_name.keys()
    topics = [world.topics.by_name[name] for name in names]
    expected = {(topic.id, p) for topic in topics for p in range(topic.partitions)}
    assigned = {
        (topic, p)
        for target in group.targets.values()
        for topic, partitions in target.items()
        for p in partitions
    }
    return assigned == expected


# --- partitions --------------------------------------------------------------------------------------


def _partitions_of(world: World, topics: set[str]) -> set[TopicPartition]:
    counts = world.partition_counts()
    return {(topic, p) for topic in topics for p in range(counts.get(topic, 0))}


def _source_partitions(
    configured: ConfiguredTopology, topology: Topology, counts: dict[str, int]
) -> set[TopicPartition]:
    """Return the source partitions that the tasks of a topology read."""
    return {
        (topic, p)
        for name, count in configured.tasks.items()
        for topic in sources(topology.subtopologies[name])
        for p in range(min(count, counts[topic]))
    }


CONDITIONS: Final[dict[type, Callable[[World, Any, list[Member]], bool]]] = {
    ClassicGroup: _is_classic_stable,
    ConsumerGroup: _is_consumer_stable,
    StreamsGroup: _is_streams_stable,
    ShareGroup: _is_share_stable,
}
"""The function that returns True for a stable group, by the group's class."""
