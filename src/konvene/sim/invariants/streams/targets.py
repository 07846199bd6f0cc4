"""Invariants of streams groups: target assignments, topology, topics, and the causes that bump the epoch.

The number of tasks is computed here from the topics alone: a subtopology has as many tasks as its largest
source topic has partitions, once all of its topics exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, RegexesResolved
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.assignors import assignment_configs, read_configs
from konvene.groups.streams.current_assignment import CurrentAssignment, Role
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, Status
from konvene.groups.streams.topology.expressions import expand_expressions, unmatched
from konvene.groups.streams.topology.internal_topics import CREATE_TOPICS
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.shard import causes
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants.streams.decisions import HEARTBEAT, is_accepted_heartbeat
from konvene.sim.invariants.streams.state import (
    Task,
    matched_topics,
    new_causes,
    previous_member,
    touched,
    units,
)
from konvene.sim.invariants.subscriptions import expected_metadata_hash
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")


class TasksAreAssigned(Invariant):
    """T1, T12: a target assigns each task to exactly one member as active, and no task that does not exist.

    T2: no process has a task twice, in any role. T6: each stateful task has the configured number of
    standbys, or one on each other process. T4, T7: a stateless task has no standbys and no warm-ups. T10:
    while the topology is not ready no task is assigned, except that members with an older topology keep
    theirs.

    T9: in mode `kip` a member with an older topology gets no new task. So there may be fewer standbys then,
    and tasks without an owner if all members have an older topology."""

    def __init__(self) -> None:
        self.last_seen: dict[str, Topics] = {}
        """By group: the topics at the last heartbeat, for a target that a timer computes."""
        self.requested: dict[tuple[str, int], Topics] = {}
        """By group and epoch: the topics when the assignment was requested in the background."""

    def after(self, event: Event) -> None:
        self._record_topics(event)
        for name, old, group in touched(event):
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            if group.assignment_epoch == group.epoch and group.members:
                topics = self.last_seen.get(name, event.runtime.topics)
                if event.kind == "completion":
                    topics = self.requested[name, group.epoch]
                stale = self._check_stale_members(event, old, group)
                self._check_target(group, topics, stale)

    def _record_topics(self, event: Event) -> None:
        topics = event.runtime.topics
        joins = event.is_request("JoinGroup") and event.error is Errors.NONE
        if joins or is_accepted_heartbeat(event):
            self.last_seen[event.request.group_id] = topics
        if event.kind == "completion" and isinstance(event.news, RegexesResolved):
            self.last_seen[event.news.group_id] = topics
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                group_id = effect.subject.group_id
                self.requested[group_id, effect.subject.epoch] = self.last_seen.get(group_id, topics)

    def _check_stale_members(self, event: Event, old: StreamsGroup | None, group: StreamsGroup) -> set[str]:
        """Check that members with an older topology get no new tasks; return their ids."""
        if group.topology is None or event.runtime.config["konvene.streams.mode"] == KAFKA:
            return set()
        stale = {m.member_id for m in group.members.values() if m.topology_epoch != group.topology.epoch}
        for member_id in sorted(stale & group.targets.keys()):
            before = previous_member(old, group.members[member_id])
            assigned = before.current.assigned.units() if before is not None else set()
            new = units(group.targets[member_id]) - assigned
            assert not new, f"{group!r}: {member_id} has an older topology, but is to get {sorted(new)}"
        return stale

    def _check_target(self, group: StreamsGroup, topics: Topics, stale: set[str]) -> None:
        missing = group.members.keys() - group.targets.keys()
        assert not missing, f"{group!r}: {sorted(missing)} have no target"
        if group.topology is None or group.validated_topology_epoch != group.topology.epoch:
            assigned = {name: units(target) for name, target in group.targets.items() if name not in stale}
            assert not any(assigned.values()), f"{group!r} is not ready, but the target is {assigned}"
            return
        tasks = tasks_of(expand_expressions(group.topology, matched_topics(group, topics) or {}), topics)
        active: dict[Task, str] = {}
        standbys: dict[Task, int] = dict.fromkeys(tasks, 0)
        warmups: dict[Task, int] = dict.fromkeys(tasks, 0)
        by_process: dict[tuple[str, Task], str] = {}
        for member_id, target in group.targets.items():
            process = group.members[member_id].process_id
            for role, subtopology, partition in sorted(units(target)):
                task = subtopology, partition
                assert task in tasks, f"{group!r}: {member_id} is to have {task}, which does not exist"
                other = by_process.setdefault((process, task), member_id)
                assert other == member_id, f"{group!r}: the process {process} is to have {task} twice"
                if role is Role.ACTIVE:
                    assert task not in active, f"{group!r}: {active[task]} and {member_id} are to run {task}"
                    active[task] = member_id
                else:
                    assert tasks[task], f"{group!r}: {member_id} is to have a copy of the stateless {task}"
                    (warmups if role is Role.WARMUP else standbys)[task] += 1
            target_tasks = [unit[1:] for unit in units(target)]
            assert len(target_tasks) == len(set(target_tasks)), (
                f"{group!r}: {member_id} is to have a task in two roles"
            )
        unassigned = sorted(tasks.keys() - active.keys())
        assert not unassigned or stale == group.members.keys(), f"{group!r}: {unassigned} are not assigned"
        self._check_copies(group, tasks, standbys, warmups, stale)

    def _check_copies(
        self,
        group: StreamsGroup,
        tasks: dict[Task, bool],
        standbys: dict[Task, int],
        warmups: dict[Task, int],
        stale: set[str],
    ) -> None:
        processes = {member.process_id for member in group.members.values()}
        configs = read_configs(group.assignment_configs)
        assert sum(warmups.values()) <= configs.num_warmup_replicas, (
            f"{group!r} has too many warm-ups: {warmups}"
        )
        max_standbys = min(configs.num_standby_replicas, len(processes) - 1)
        for task, count in standbys.items():
            expected, warming = max_standbys if tasks[task] else 0, warmups[task]
            complete = stale or count + warming >= expected
            assert warming <= 1 and count <= expected and complete, (
                f"{group!r}: {task} is to have {count} standbys and {warming} warm-ups, not {expected}"
            )


def tasks_of(topology: Topology, topics: Topics) -> dict[Task, bool]:
    """Return the tasks of a topology, each with whether it is stateful. All source topics must exist."""
    return {
        (name, partition): bool(each.state_changelog_topics)
        for name, each in topology.subtopologies.items()
        for partition in range(max(topics.by_name[topic].partitions for topic in sources(each)))
    }


class StreamsEpochBumpsHaveACause(Invariant):
    """T13: a decision bumps the epoch by at most one. A bump is required if members join or leave, if the
    metadata of a member change (of a static or classic member: those that targets depend on), or if the
    topology, its topics, their validation or the assignment configs change. It is permitted for a warm-up
    (see `CaughtUpWarmupsBumpEpochs`), and for other metadata of a static or classic member if the request is
    a JoinGroup or has no instance id. For any other reason it is forbidden."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            if old is None and isinstance(event.before.groups.get(name), ClassicGroup):
                continue  # See `StreamsUpgradesKeepTasks`.
            if old is None:
                assert group.epoch == FIRST_EPOCH + 1, f"{name} was created at {group.epoch}"
            elif not _uses_id_of_other_member(event, old):
                self._check_bump(event, old, group)

    def _check_bump(self, event: Event, old: StreamsGroup, group: StreamsGroup) -> None:
        bumps = group.epoch - old.epoch
        assert bumps in (0, 1), f"{group.group_id} moved from {old.epoch} to {group.epoch} at once"
        required = self._target_inputs(old, group) != self._target_inputs(group, old)
        reported = {cause.kind for cause in new_causes(event, old, group)}
        warmup_kinds = {causes.WARMUP_CAUGHT_UP, causes.MEMBER_METADATA_CHANGED}
        for_warmup = bool(old.warmup) and reported <= warmup_kinds
        allowed = (
            required
            or for_warmup
            or old.members.keys() != group.members.keys()
            or any(
                self._metadata(m) != self._metadata(previous_member(old, m)) for m in group.members.values()
            )
        )
        assert bumps or not required, f"{group!r}: the inputs of its target changed, but not the epoch"
        assert allowed or not bumps, f"{group!r}: the epoch moved without a change"
        if bumps and not required and not for_warmup:
            # A static member that omits its instance id counts as a dynamic one.
            unnamed = event.request is not None and getattr(event.request, "instance_id", None) is None
            assert unnamed, f"{group!r}: the epoch moved for metadata that targets do not depend on"

    def _target_inputs(self, group: StreamsGroup, other: StreamsGroup) -> tuple[object, ...]:
        """Return everything of `group` that its target assignment is computed from, in a form that is equal
        to that of `other` (the group at another time) if the target need not change. Of a member that is
        static in either group, or of the classic protocol, only the metadata that targets depend on are
        included."""
        members = {}
        for m in group.members.values():
            key = (
                m.member_id if m.member_id in other.members else (m.instance_id, m.instance_id or m.member_id)
            )
            previous = previous_member(other, m)
            dynamic = m.instance_id is None and getattr(previous, "instance_id", None) is None
            members[key] = (
                self._metadata(m)
                if dynamic and m.classic is None
                else (m.topology_epoch, m.rack_id, m.client_tags, m.process_id)
            )
        return (
            members, group.topology, group.metadata_hash, group.validated_topology_epoch,
            dict(group.assignment_configs),
        )  # fmt: skip

    def _metadata(self, member: Member | None) -> Member | None:
        """Return the member without its id and assignment."""
        return None if member is None else replace(member, member_id="", current=CurrentAssignment())


def _uses_id_of_other_member(event: Event, old: StreamsGroup) -> bool:
    """Return True if a hostile client joins as a static member under the member id of another one, which is
    removed without notice, as in Kafka."""
    request = event.request
    if not event.is_request(HEARTBEAT) or request.instance_id is None or request.member_id not in old.members:
        return False
    return bool(old.members[request.member_id].instance_id != request.instance_id)


class StreamsMetadataHashIsCurrent(Invariant):
    """T13, M12: after a heartbeat the group's hash is that of the current topics of its topology: a change
    takes effect with the next heartbeat of any member."""

    def after(self, event: Event) -> None:
        if not is_accepted_heartbeat(event):
            return
        group, topics = event.after.groups[event.request.group_id], event.runtime.topics
        assert group.topology is not None, f"{group!r} accepted a heartbeat, but has no topology"
        matches = matched_topics(group, topics)
        if matches is None:
            return
        names = set(expand_expressions(group.topology, matches).required_topics)
        expected = expected_metadata_hash(names, topics)
        assert group.metadata_hash == expected, (
            f"{group!r}: the hash is {group.metadata_hash}, of {sorted(names)} it is {expected}"
        )


class AssignmentConfigsAreCurrent(Invariant):
    """T13: after a heartbeat the group has the current assignment configs: a change
    takes effect with the next heartbeat of any member."""

    def after(self, event: Event) -> None:
        if not is_accepted_heartbeat(event):
            return
        group = event.after.groups[event.request.group_id]
        config = event.context.group_configs.of(group.group_id)
        current, expected = dict(group.assignment_configs), assignment_configs(config, group.topology)
        assert group.assignment_configs == expected, (
            f"{group!r}: the target is of {current}, the configs are {expected}"
        )


class TopologiesAreKept(Invariant):
    """T8: a group keeps its topology for its lifetime; in mode `kip` the topology of the next epoch may
    replace it. The validated topology epoch is that of the topology, or -1."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            epoch = group.topology.epoch if group.topology is not None else -1
            assert group.validated_topology_epoch in (-1, epoch), (
                f"{group!r}: validated at {group.validated_topology_epoch}, the topology is of {epoch}"
            )
            if old is None or event.is_complete or old.topology is None or old.topology == group.topology:
                continue
            assert event.runtime.config["konvene.streams.mode"] != KAFKA, f"{name} changed its topology"
            assert epoch == old.topology.epoch + 1, f"{name}: topology {old.topology.epoch} became {epoch}"


TOPIC_STATUSES = {
    Status.MISSING_SOURCE_TOPICS, Status.INCORRECTLY_PARTITIONED_TOPICS, Status.MISSING_INTERNAL_TOPICS,
}  # fmt: skip


class MissingTopicsAreReported(Invariant):
    """T10: a group is ready exactly if no problem with topics is reported. Missing source topics are reported
    first, then incorrect partition counts, then missing internal topics.

    T11: the missing internal topics, and no others, are created; existing topics are not changed."""

    def after(self, event: Event) -> None:
        if not is_accepted_heartbeat(event):
            return
        group, existing = event.after.groups[event.request.group_id], event.runtime.topics.by_name
        matches = matched_topics(group, event.runtime.topics)
        if matches is None:
            return
        topology: Topology = expand_expressions(group.topology, matches)
        response: Any = event.answer
        reported = {s.status_code for s in response.status} & TOPIC_STATUSES
        ready = group.validated_topology_epoch == topology.epoch
        assert ready == (not reported), f"{group!r}: ready: {ready}, reported: {sorted(reported)}"
        absent = {name for name in topology.source_topics if name not in existing}
        absent.update(unmatched(group.topology, matches))
        missing = {name for name in topology.required_topics if name not in existing} - absent
        if absent:
            assert reported == {Status.MISSING_SOURCE_TOPICS}, f"without {sorted(absent)}: {reported}"
        elif missing:
            assert reported <= TOPIC_STATUSES - {Status.MISSING_SOURCE_TOPICS}, (
                f"without {sorted(missing)}: {reported}"
            )
            assert reported, f"{group!r}: the missing {sorted(missing)} are not reported"
        else:
            assert reported <= {Status.INCORRECTLY_PARTITIONED_TOPICS}, f"all topics exist: {reported}"
        creates_missing = reported == {Status.MISSING_INTERNAL_TOPICS}
        self._check_created(event, group, missing if creates_missing else set())
        if ready:
            self._check_partition_counts(topology, existing)

    def _check_created(self, event: Event, group: StreamsGroup, expected: set[str]) -> None:
        effects = event.outcome.effects if event.outcome else ()
        creations = [effect.subject for effect in effects if effect.verb == CREATE_TOPICS]
        assert len(creations) <= 1, f"{group!r} creates topics with {len(creations)} requests"
        created = {topic.name: topic.partitions for each in creations for topic in each.topics}
        assert created.keys() == expected, f"{group!r} creates {sorted(created)}, not {sorted(expected)}"
        assert all(count > 0 for count in created.values()), f"{group!r} creates {created}"

    def _check_partition_counts(self, topology: Topology, topics: Mapping[str, Topic]) -> None:
        """Check that each changelog has a partition for each task, and co-partitioned topics equally many."""
        for name, each in topology.subtopologies.items():
            count = max(topics[topic].partitions for topic in sources(each))
            for changelog in each.state_changelog_topics:
                partitions = topics[changelog.name].partitions
                assert partitions == count, (
                    f"{name} has {count} tasks, {changelog.name} {partitions} partitions"
                )
            for joined in each.copartition_groups:
                names = [each.source_topics[at] for at in joined.source_topics]
                names += [each.repartition_source_topics[at].name for at in joined.repartition_source_topics]
                counts = {topics[topic].partitions for topic in names}
                assert len(counts) <= 1, f"the co-partitioned {names} have {sorted(counts)} partitions"
