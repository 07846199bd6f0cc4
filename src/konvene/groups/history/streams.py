"""Why a streams group's epoch moved, told from its records. Pure.

`epochs` says which rows there are. The causes of an epoch are what else its batch says, and what the epoch's
own record says that the last one did not:

    a member of which nothing was known           member-joined, unless it took a static member's place
    a member that went                            member-gone
    a member that says otherwise of itself; of    member-metadata-changed
    a static one only what targets rest on
    the end of a classic group with members       upgraded
    a topology where there was none               topology-initialized
    another one in its place                      topology-updated
    other topics (their hash), and none of all    topic-metadata-changed
    that but for members that went
    it was found that all topics are there        topology-ready
    it was found that they are not any more       topology-not-ready
    other settings, and none of all that          assignment-configs-changed
    nothing of all that, while somebody warms     warmup-caught-up
    up a task and is meant to
    nothing of all that                           unknown

The last row of a rebalance says Stable, or NotReady where all members have let go of all tasks because topics
of the topology are missing. It counts the tasks that moved: those that a member was to have in a role by a
target since, and not by the one before; who took a static member's place was to have what that had.

What is guessed: Kafka may put several requests into one batch. Who said what the topology is, is taken to be
the member whose record stands before it. Which topic changed cannot be seen from a hash. How far warm-ups are
is in no log: who caught up is named where only one member warms anything up. A warm-up is also given up, with
an epoch, where its member turns out to report nothing; that looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from konvene.groups.assignors.tasks.contract import NOTHING, MemberAssignment
from konvene.groups.history.conversion import HandedOver
from konvene.groups.history.modern import (
    At,
    EpochHistory,
    Memory,
    Take,
    cause_of,
    changed_members,
    key_of,
)
from konvene.groups.streams.current_assignment import CurrentAssignment
from konvene.groups.streams.decision import settled_state
from konvene.groups.streams.group import NO_EPOCH, Member, State, StreamsGroup
from konvene.groups.streams.log import replay
from konvene.groups.streams.targets import gained
from konvene.groups.streams.topology.changes import changes
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.records.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from konvene.shard import causes

__all__ = ["StreamsHistory"]

NOWHERE = CurrentAssignment()
NO_TASK = (0, 0, 0)
"""In no role."""


@dataclass(slots=True)
class _Memory(Memory):
    topology: str = ""
    """The cause, if this batch said what the topology is, since the last epoch in it."""
    topology_changes: str | None = None
    """What is different in it."""
    targets: dict[str, MemberAssignment] = field(default_factory=dict)
    """What members were to have who went in this batch."""
    passing: dict[str, Member] = field(default_factory=dict)
    """By instance id, members that came and went in this batch: one that takes a static member's place for
    the group to be a classic one again."""

    def forget_batch(self, batch: int = -1, offset: int = -1) -> None:
        Memory.forget_batch(self, batch, offset)
        self.topology, self.topology_changes = "", None
        self.targets.clear()
        self.passing.clear()


class StreamsHistory(HandedOver[StreamsGroup, _Memory]):
    """The streams groups of a partition."""

    group_type: ClassVar[str] = "streams"

    def _begin(self, group_id: str) -> tuple[StreamsGroup, _Memory]:
        return StreamsGroup(group_id), _Memory()

    def _replay(self, record: Record) -> None:
        replay(self._groups, record)

    def _without_units(self, value: Any) -> Any:
        return value.replace(
            active_tasks=(), active_tasks_pending_revocation=(), standby_tasks=(),
            standby_tasks_pending_revocation=(), warmup_tasks_pending_revocation=(),
        )  # fmt: skip

    def _state(self, group: StreamsGroup) -> str:
        return settled_state(group.topology, group.validated_topology_epoch)

    def _is_stale(self, group: StreamsGroup, memory: _Memory, before: list[Any]) -> bool:
        """Or others had not followed it, or who took the last one's place runs something else."""
        for member in before:
            after = None if member.instance_id is None else memory.passing.get(member.instance_id)
            if after is None and not member.is_reconciled_to(memory.assignment_epoch):
                return True
            if after is not None and _rests_on(after) != _rests_on(member):
                return True
        return super()._is_stale(group, memory, before)

    # --- types of records of its own ---

    def _take_member(
        self, group: StreamsGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        before = group.members.get(member_id)
        memory.members.setdefault(member_id, before)
        memory.latest = member_id
        if record.value is None and before is not None:
            _note_passing(memory, before)
        self._replay(record)
        if member_id not in group.members:
            memory.reached_ms.pop(member_id, None)
        return None

    def _take_topology(
        self, group: StreamsGroup, memory: _Memory, record: Record, at: At
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
        self, group: StreamsGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        before = group.targets.get(member_id)
        if record.value is None and before is not None:
            memory.targets[member_id] = before
        self._replay(record)
        story = memory.story
        if record.value is not None and story is not None:
            before = before if before is not None else self._predecessors(group, memory, member_id)
            now = gained(before, group.target_of(member_id))
            story.moved = tuple(map(sum, zip(story.moved or NO_TASK, now, strict=True)))
        return None

    def _take_assignment(
        self, group: StreamsGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        if memory.story is not None:  # Where nobody has another target, there is no record of one.
            memory.story.moved = memory.story.moved or NO_TASK
        return super()._take_assignment(group, memory, record, at)

    def _predecessors(self, group: StreamsGroup, memory: _Memory, member_id: str) -> MemberAssignment:
        """What the static member was to have whose place this one takes in this batch."""
        member = group.members.get(member_id)
        if member is not None and member.instance_id is not None:
            for name in memory.targets:
                old = memory.members.get(name)
                if old is not None and old.instance_id == member.instance_id:
                    return memory.targets[name]
        return NOTHING

    # --- causes ---

    def _why(self, group: StreamsGroup, memory: _Memory, value: Any, at: At) -> list[Cause]:
        """What the batch says before the new epoch, and what the epoch's record says itself."""
        gone, there = changed_members(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, at) for m in gone]
        said = []
        for before, after in there:
            if before is None:
                said.append(cause_of(causes.MEMBER_JOINED, after, at))
            elif _has_changed(before, after):
                said.append(cause_of(causes.MEMBER_METADATA_CHANGED, after, at))
        if memory.topology:
            said.append(
                cause_of(memory.topology, group.members.get(memory.latest), at).replace(
                    reason=memory.topology_changes
                )
            )
        if value.metadata_hash != group.metadata_hash and not said:
            said.append(cause_of(causes.TOPIC_METADATA_CHANGED, None, at))
        if value.validated_topology_epoch != group.validated_topology_epoch:
            is_ready = value.validated_topology_epoch != NO_EPOCH
            kind = causes.TOPOLOGY_READY if is_ready else causes.TOPOLOGY_NOT_READY
            said.append(cause_of(kind, None, at))
        configs = {row.key: row.value for row in value.last_assignment_configs or ()}
        if configs != group.assignment_configs and not said:
            said.append(cause_of(causes.ASSIGNMENT_CONFIGS_CHANGED, None, at))
        if gone or any(before is not None for before, _ in there) or len(group.members) > len(there):
            found = self._upgraded(group, _speaker(there), at) + found
        return found + said or _caught_up(group, at)

    takes: ClassVar[Mapping[type, Take]] = {
        StreamsGroupMetadataKey: EpochHistory._take_epoch,
        StreamsGroupMemberMetadataKey: _take_member,
        StreamsGroupTargetAssignmentMetadataKey: _take_assignment,
        StreamsGroupTargetAssignmentMemberKey: _take_target,
        StreamsGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        StreamsGroupTopologyKey: _take_topology,
    }


def _caught_up(group: StreamsGroup, at: At) -> list[Cause]:
    """The warm-up for which an epoch moved that nothing else explains; of several that it may be, none."""
    if group.epoch > group.assignment_epoch or group.state not in (State.STABLE, State.RECONCILING):
        return []
    found = [(m, tasks) for m in group.members.values() if (tasks := _warming_up(group, m))]
    if not found:
        return []
    member, tasks = found[0]
    if len(found) > 1:
        return [cause_of(causes.WARMUP_CAUGHT_UP, None, at)]
    return [
        cause_of(causes.WARMUP_CAUGHT_UP, member, at).replace(reason=tasks[0] if len(tasks) == 1 else None)
    ]


def _warming_up(group: StreamsGroup, member: Member) -> list[str]:
    """The tasks that a member warms up and is meant to."""
    wanted = group.target_of(member.member_id).warmup
    return [
        f"{name}_{partition}"
        for name, some in sorted(member.current.assigned.warmup.items())
        for partition in some
        if partition in wanted.get(name, ())
    ]


def _note_passing(memory: _Memory, member: Member) -> None:
    """It goes, perhaps in the batch in which it came."""
    if member.instance_id is not None and memory.members[member.member_id] is None:
        memory.passing[member.instance_id] = member


def _speaker(there: Iterable[tuple[Member | None, Member]]) -> Member | None:
    """The first that speaks the new protocol, and did not before, or was not there."""
    return next((m for old, m in there if m.classic is None and (old is None or old.classic)), None)


def _has_changed(before: Member, after: Member) -> bool:
    """Whether an epoch moves for what a member says of itself. In the classic protocol it says something else
    each time: how far its tasks are."""
    if after.instance_id is not None or after.classic is not None:
        return _rests_on(before) != _rests_on(after)
    return before.having(NOWHERE) != after.having(NOWHERE)


def _rests_on(member: Member) -> object:
    return member.topology_epoch, member.rack_id, member.client_tags, member.process_id
