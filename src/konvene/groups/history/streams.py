"""Infer why a streams group's epoch was bumped from its records, without I/O.

`modern` defines when there is a row. The causes of an epoch are the other records of its batch, and the
changes in the epoch's own record:

    record                                        cause
    a new member                                  member-joined, unless it replaced a static member
    a member's tombstone                          MEMBER_DEPARTED
    a member with other metadata; for a static    member-metadata-changed
    or classic one only if it affects assignments
    the tombstone of a classic group with members upgraded
    the first topology                            topology-initialized
    another topology                              topology-updated
    another metadata hash, without any of the     topic-metadata-changed
    above except departed members
    the topology was validated                    topology-ready
    the topology is not valid any more            topology-not-ready
    other configs, without any of the above       assignment-configs-changed
    except departed members
    none of these, while an assigned warm-up task warmup-caught-up
    is in progress
    none of these                                 unknown

The last row of a rebalance has state Stable, or NotReady if all members revoked all tasks because topics of
the topology are missing. It counts the tasks that moved: those in a member's targets since, but not in its
target before; a member that replaced a static member inherits that one's target.

Assumptions: Kafka may put several requests into one batch. The member with the last record before a topology
sent it. A hash does not show which topic changed. The log does not have the lags of warm-ups: the member that
caught up is only named if it is the only one with warm-ups. If a member turns out to report no offsets, its
warm-up is dropped with a new epoch, which looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from konvene.groups.assignors.tasks.contract import NOTHING, MemberAssignment
from konvene.groups.history.conversion import ConvertibleHistory, upgrader_of
from konvene.groups.history.modern import (
    EpochHistory,
    Memory,
    Position,
    RecordHandler,
    cause_of,
    changed_members,
    key_of,
)
from konvene.groups.streams.current_assignment import CurrentAssignment
from konvene.groups.streams.decision import settled_state
from konvene.groups.streams.group import NO_EPOCH, Member, State, StreamsGroup
from konvene.groups.streams.log import RECORDS
from konvene.groups.streams.targets import count_gained_tasks
from konvene.groups.streams.topology.changes import changes
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.records.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from konvene.shard import causes

__all__ = ["StreamsHistory"]

NO_ASSIGNMENT = CurrentAssignment()
NO_TASKS_MOVED = (0, 0, 0)
"""The `moved` counts, by role, of targets that are unchanged."""


@dataclass(slots=True)
class _Memory(Memory[Member]):
    topology: str = ""
    """The cause to report if this batch had a record of the topology since its last epoch; else empty."""
    topology_changes: str | None = None
    """The summary of what changed in that topology."""
    targets: dict[str, MemberAssignment] = field(default_factory=dict)
    """The last targets of members whose target was deleted in this batch, by member id."""
    passing: dict[str, Member] = field(default_factory=dict)
    """Members that joined and departed in this batch, by instance id.

    A member that replaces a static one while the group is downgraded does so."""

    def forget_batch(self, batch: int = -1) -> None:
        Memory.forget_batch(self, batch)
        self.topology, self.topology_changes = "", None
        self.targets.clear()
        self.passing.clear()


class StreamsHistory(ConvertibleHistory[StreamsGroup, _Memory]):
    """A reader that infers the rebalances of a partition's streams groups from their records."""

    records = RECORDS
    new_memory = _Memory

    def _without_units(
        self, value: StreamsGroupCurrentMemberAssignmentValue
    ) -> StreamsGroupCurrentMemberAssignmentValue:
        return value.replace(
            active_tasks=(), active_tasks_pending_revocation=(), standby_tasks=(),
            standby_tasks_pending_revocation=(), warmup_tasks_pending_revocation=(),
        )  # fmt: skip

    def _state(self, group: StreamsGroup) -> str:
        return settled_state(group.topology, group.validated_topology_epoch)

    def _is_stale(self, group: StreamsGroup, memory: _Memory, before: list[Member]) -> bool:
        """Return whether a group that ended still had to rebalance.

        This is so if its last epoch had no target, if a member had not reached its target, or if the member
        that replaces a static one differs from it in what affects assignments. `before`: the members that it
        had."""
        for member in before:
            after = None if member.instance_id is None else memory.passing.get(member.instance_id)
            if after is None and not member.is_reconciled_to(memory.assignment_epoch):
                return True
            if after is not None and _assignment_inputs(after) != _assignment_inputs(member):
                return True
        return super()._is_stale(group, memory, before)

    # --- record handlers ---

    def _take_member(
        self, group: StreamsGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        before = group.members.get(member_id)
        memory.members.setdefault(member_id, before)
        if record.value is None and before is not None:
            _note_departed(memory, before)
        return super()._take_member(group, memory, record, position)

    def _take_topology(
        self, group: StreamsGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        before = group.topology
        self._replay(record)
        after = group.topology
        memory.topology, memory.topology_changes = "", None
        if after is not None:
            memory.topology = causes.TOPOLOGY_UPDATED if before else causes.TOPOLOGY_INITIALIZED
            memory.topology_changes = changes(before, after) if before else None
        return None

    def _take_target(
        self, group: StreamsGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        before = group.targets.get(member_id)
        if record.value is None and before is not None:
            memory.targets[member_id] = before
        self._replay(record)
        rebalance = memory.rebalance
        if record.value is not None and rebalance is not None:
            before = before if before is not None else self._replaced_target(group, memory, member_id)
            now = count_gained_tasks(before, group.target_of(member_id))
            rebalance.moved = tuple(map(sum, zip(rebalance.moved or NO_TASKS_MOVED, now, strict=True)))
        return None

    def _take_assignment(
        self, group: StreamsGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        if memory.rebalance is not None:  # If no target changed, there are no records of targets.
            memory.rebalance.moved = memory.rebalance.moved or NO_TASKS_MOVED
        return super()._take_assignment(group, memory, record, position)

    def _replaced_target(self, group: StreamsGroup, memory: _Memory, member_id: str) -> MemberAssignment:
        """Return the last target of the static member that this one replaced in this batch.

        It is empty if the member replaced no other one."""
        member = group.members.get(member_id)
        if member is not None and member.instance_id is not None:
            for name in memory.targets:
                old = memory.members.get(name)
                if old is not None and old.instance_id == member.instance_id:
                    return memory.targets[name]
        return NOTHING

    # --- causes ---

    def _infer_causes(
        self, group: StreamsGroup, memory: _Memory, value: StreamsGroupMetadataValue, position: Position
    ) -> list[Cause]:
        """Return why the epoch was bumped, from its record and the records before it in the batch."""
        departed, present = changed_members(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, position) for m in departed]
        others = []
        for before, after in present:
            if before is None:
                others.append(cause_of(causes.MEMBER_JOINED, after, position))
            elif _has_changed(before, after):
                others.append(cause_of(causes.MEMBER_METADATA_CHANGED, after, position))
        if memory.topology:
            others.append(
                cause_of(memory.topology, group.members.get(memory.latest), position).replace(
                    reason=memory.topology_changes
                )
            )
        if value.metadata_hash != group.metadata_hash and not others:
            others.append(cause_of(causes.TOPIC_METADATA_CHANGED, None, position))
        if value.validated_topology_epoch != group.validated_topology_epoch:
            is_ready = value.validated_topology_epoch != NO_EPOCH
            kind = causes.TOPOLOGY_READY if is_ready else causes.TOPOLOGY_NOT_READY
            others.append(cause_of(kind, None, position))
        configs = {row.key: row.value for row in value.last_assignment_configs or ()}
        if configs != group.assignment_configs and not others:
            others.append(cause_of(causes.ASSIGNMENT_CONFIGS_CHANGED, None, position))
        if departed or any(before is not None for before, _ in present) or len(group.members) > len(present):
            found = self._upgraded(group, upgrader_of(present), position) + found
        return found + others or _caught_up(group, position)

    handlers: ClassVar[Mapping[type, RecordHandler]] = {
        StreamsGroupMetadataKey: EpochHistory._take_epoch,
        StreamsGroupMemberMetadataKey: _take_member,
        StreamsGroupTargetAssignmentMetadataKey: _take_assignment,
        StreamsGroupTargetAssignmentMemberKey: _take_target,
        StreamsGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        StreamsGroupTopologyKey: _take_topology,
    }


def _caught_up(group: StreamsGroup, position: Position) -> list[Cause]:
    """Return the cause of an epoch that only a caught-up warm-up task can explain.

    It is empty if no warm-up task is in progress, and names the member if only one has such tasks. A warm-up
    task restores state on a member before it becomes active there."""
    if group.epoch > group.assignment_epoch or group.state not in (State.STABLE, State.RECONCILING):
        return []
    found = [(m, tasks) for m in group.members.values() if (tasks := _warming_up(group, m))]
    if not found:
        return []
    member, tasks = found[0]
    if len(found) > 1:
        return [cause_of(causes.WARMUP_CAUGHT_UP, None, position)]
    return [
        cause_of(causes.WARMUP_CAUGHT_UP, member, position).replace(
            reason=tasks[0] if len(tasks) == 1 else None
        )
    ]


def _warming_up(group: StreamsGroup, member: Member) -> list[str]:
    """Return the tasks that a member warms up and that are in its target."""
    wanted = group.target_of(member.member_id).warmup
    return [
        f"{name}_{partition}"
        for name, some in sorted(member.current.assigned.warmup.items())
        for partition in some
        if partition in wanted.get(name, ())
    ]


def _note_departed(memory: _Memory, member: Member) -> None:
    """Note a static member that departs in the same batch in which it joined; ignore any other member.

    Such a member may have replaced another one: `memory.passing` has it by its instance id."""
    if member.instance_id is not None and memory.members[member.member_id] is None:
        memory.passing[member.instance_id] = member


def _has_changed(before: Member, after: Member) -> bool:
    """Return whether a change of a member's metadata bumps the epoch.

    For a classic or static member only what affects assignments counts: other metadata of classic members
    changes with every join."""
    if after.instance_id is not None or after.classic is not None:
        return _assignment_inputs(before) != _assignment_inputs(after)
    return before.having(NO_ASSIGNMENT) != after.having(NO_ASSIGNMENT)


def _assignment_inputs(member: Member) -> object:
    return member.topology_epoch, member.rack_id, member.client_tags, member.process_id
