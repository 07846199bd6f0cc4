"""Infer when epochs of consumer, share and streams groups began, why, and when all members had reconciled.

There are two kinds of rows. The record of a new group epoch gives one in state Assigning or Empty; each group
type infers its causes from the rest of the batch (`consumer`, `share`, `streams`). The record that completes
the reconciliation of all members gives one in the state that the group has then, with the causes of all
epochs since the last such row.

A batch of Kafka may have several decisions, one after the other (`group.coordinator.append.linger.ms`). A
decision writes its changes of members first, then the epoch, then targets and current assignments.
Assumption: all changes of a batch before an epoch, and after the epoch before it, belong to it.

There are rows only where no record can be missing before them (`reader`); a row of the second kind requires
this for its epochs, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from konvene.groups import audit_members
from konvene.groups.audit_members import AuditedMember, rebalanced_member
from konvene.groups.modern.group import Member, ModernGroup
from konvene.groups.modern.log import RecordTypes
from konvene.groups.modern.rebalance_trace import MOST_CAUSES
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard import causes

__all__ = [
    "EpochHistory", "Memory", "PendingRebalance", "Position", "RecordHandler", "cause_of", "changed_members",
    "key_of",
]  # fmt: skip


MemberT = TypeVar("MemberT", bound=Member)


class Position(NamedTuple):
    """The position of a record in the log."""

    offset: int
    timestamp_ms: int
    complete: bool
    """Whether no record before it can be missing."""


@dataclass(slots=True)
class PendingRebalance:
    """A rebalance in progress: not all members are reconciled to the target."""

    started_ms: int
    targeted_ms: int = -1
    causes: list[Cause] = field(default_factory=list)
    causes_left_out: int = 0
    moved: tuple[int, ...] = ()
    """How many tasks the targets have moved, by role; empty where that is not counted."""

    def add(self, found: Iterable[Cause]) -> None:
        combined = [*self.causes, *found]
        self.causes_left_out += max(len(combined) - MOST_CAUSES, 0)
        self.causes = combined[:MOST_CAUSES]


@dataclass(slots=True)
class Memory(Generic[MemberT]):
    """What is remembered of one group for the inference: its changes in this batch, and its rebalance.

    The state of the group itself is kept apart, as a `ModernGroup`."""

    batch: int = -1
    """Serial number of the batch that the fields below refer to."""
    first_offset: int = -1
    """Offset of the first change that may belong to the next epoch; -1 if there is none."""
    assignment_epoch: int = -1
    """The assignment epoch before the batch."""
    members: dict[str, MemberT | None] = field(default_factory=dict)
    """Members that this batch has changed since its last epoch, as they were before; None for new ones."""
    latest: str = ""
    """Id of the member whose record came last."""
    has_epoch: bool = False
    """Whether a record of the group's epoch was read."""
    settled: bool = False
    """Whether the group has been reconciled or empty since its last epoch."""
    rebalance: PendingRebalance | None = None
    reached_ms: dict[str, int] = field(default_factory=dict)
    """When each member reached the target, by member id."""

    def forget_batch(self, batch: int = -1) -> None:
        self.batch, self.first_offset = batch, -1
        self.members.clear()
        self.latest = ""

    def gap(self) -> None:
        """Drop the rebalance in progress. Called where records of the group may be missing in the log."""
        self.rebalance, self.settled = None, False


G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Memory[Any])
RecordHandler = Callable[..., RebalanceValue | None]


class EpochHistory(ABC, Generic[G, M]):
    """A reader that replays the records of all groups of one type and infers their rebalances."""

    records: ClassVar[RecordTypes[Any]]
    new_memory: ClassVar[Callable[[], Memory[Any]]] = Memory
    separate_keys: ClassVar[tuple[type, ...]] = ()
    """Keys of records that are decisions of their own."""
    handlers: ClassVar[Mapping[type, RecordHandler]]
    """The handlers of records by the type of their key."""

    def __init__(self, partition: int, *, units: bool = False) -> None:
        self._partition = partition
        self._units = units
        self._groups: dict[str, G] = {}
        self._memories: dict[str, M] = {}
        self._batch = 0
        types = self.records
        self._written_last = (types.target_key, types.assignment_key, types.current_key, *self.separate_keys)
        """Keys of records that a decision does not write before its epoch."""

    def __repr__(self) -> str:
        return f"<history of {len(self._groups)} {self.records.group_class.group_type} groups>"

    # --- what differs between group types ---

    @abstractmethod
    def _without_units(self, value: Any) -> Any:
        """Return the value of a current-assignment record without partitions or tasks, to save memory."""

    @abstractmethod
    def _infer_causes(self, group: G, memory: M, value: Any, position: Position) -> list[Cause]:
        """Return the causes of a new epoch that its batch shows; `value`: the record of the epoch."""

    def _state(self, group: G) -> str:
        """Return the state to report for a group that is reconciled or empty."""
        return group.state.value

    def _is_conversion(self, group: G, first: bool) -> bool:
        """Return whether an epoch is the generation of a classic group that was upgraded.

        `first`: it is the first epoch of the group that was read."""
        return False

    def _begin(self, group_id: str) -> tuple[G, M]:
        """Return a new, empty group, and a new memory for it."""
        memory: Any = type(self).new_memory()
        return self.records.group_class(group_id), memory

    def _replay(self, record: Record) -> None:
        """Apply a record to its group."""
        self.records.replay(self._groups, record)

    # --- called by the reader of the partition ---

    def next_batch(self) -> None:
        self._batch += 1

    def gap(self) -> None:
        """Drop the rebalances in progress of all groups. Called where records may be missing in the log."""
        for memory in self._memories.values():
            memory.gap()

    def forget(self, group_id: str) -> None:
        """Drop a group that was deleted or has another type now."""
        self._groups.pop(group_id, None)
        self._memories.pop(group_id, None)

    def group(self, group_id: str) -> G | None:
        """Return the group as of the last record that was read; None if there is none of this type.

        Its assignments are complete only with `units`."""
        return self._groups.get(group_id)

    def replay_without_row(self, record: Record) -> None:
        """Apply a record of a kind from which no rebalance is inferred; create its group if necessary."""
        group_id = key_of(record).group_id
        if record.value is not None and group_id not in self._groups:
            self._groups[group_id], self._memories[group_id] = self._begin(group_id)
        self._replay(record)

    def take(self, record: Record, position: Position) -> RebalanceValue | None:
        """Apply a record whose key has one of the classes in `handlers`.

        Return the rebalance that it begins or completes, None if it does neither."""
        key: Any = record.key
        group = self._groups.get(key.group_id)
        if group is None:
            if record.value is None:
                return None
            group, memory = self._begin(key.group_id)
            self._groups[key.group_id], self._memories[key.group_id] = group, memory
        memory = self._memories[key.group_id]
        if memory.batch != self._batch:
            memory.forget_batch(self._batch)
            memory.assignment_epoch = group.assignment_epoch
        if memory.first_offset < 0 and (record.value is None or not isinstance(key, self._written_last)):
            memory.first_offset = position.offset
        return self.handlers[type(key)](self, group, memory, record, position)

    # --- record handlers ---

    def _take_member(self, group: G, memory: M, record: Record, position: Position) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        memory.members.setdefault(member_id, group.members.get(member_id))
        memory.latest = member_id
        self._replay(record)
        if member_id not in group.members:
            memory.reached_ms.pop(member_id, None)
        return None

    def _take_assignment(
        self, group: G, memory: M, record: Record, position: Position
    ) -> RebalanceValue | None:
        self._replay(record)
        memory.reached_ms.clear()
        if memory.rebalance is not None:
            memory.rebalance.targeted_ms = position.timestamp_ms
        return None

    def _take_current(self, group: G, memory: M, record: Record, position: Position) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        value: Any = record.value
        if value is None:
            memory.members.setdefault(member_id, group.members.get(member_id))
        elif not self._units:
            record = Record(record.key, self._without_units(value))
        self._replay(record)
        member = group.members.get(member_id)
        if member is None or not member.is_reconciled_to(group.assignment_epoch):
            memory.reached_ms.pop(member_id, None)
            return None
        memory.reached_ms.setdefault(member_id, position.timestamp_ms)
        if not position.complete or group.behind or group.epoch > group.assignment_epoch:
            return None
        memory.settled = True
        rebalance, memory.rebalance = memory.rebalance, None
        return None if rebalance is None else self._stable(group, memory, rebalance, position)

    def _stable(self, group: G, memory: M, rebalance: PendingRebalance, position: Position) -> RebalanceValue:
        return RebalanceValue(
            group_type=group.group_type,
            epoch=group.assignment_epoch,
            state=self._state(group),
            started_ms=rebalance.started_ms,
            joined_ms=rebalance.targeted_ms,
            ended_ms=position.timestamp_ms,
            partition=self._partition,
            base_offset=position.offset,
            last_offset=position.offset,
            inferred=True,
            causes=tuple(rebalance.causes),
            causes_left_out=rebalance.causes_left_out,
            # Without a start, earlier targets are missing.
            moved=rebalance.moved if rebalance.started_ms >= 0 else (),
            members=tuple(
                rebalanced_member(m, memory.reached_ms.get(m.member_id, -1))
                for _, m in sorted(group.members.items())
            ),
        )

    def _take_epoch(self, group: G, memory: M, record: Record, position: Position) -> RebalanceValue | None:
        value: Any = record.value
        if value is None:
            self._end(group, memory)
            return None
        first, increase = not memory.has_epoch, value.epoch - group.epoch
        memory.has_epoch = True
        if self._is_conversion(group, first):
            self._replay(record)
            memory.settled = True
            memory.forget_batch(self._batch)
            return None
        if increase == 0 and not first:
            self._replay(record)
            return None
        if not position.complete:
            self._replay(record)
            memory.settled, memory.rebalance = False, None
            memory.forget_batch(self._batch)
            return None
        found = self._infer_causes(group, memory, value, position) if increase == 1 or first else []
        return self._bumped(group, memory, record, found or [Cause(kind=causes.UNKNOWN)], position)

    def _end(self, group: G, memory: M) -> None:
        """Remove a deleted group."""
        self.forget(group.group_id)

    def _bumped(
        self, group: G, memory: M, record: Record, found: list[Cause], position: Position
    ) -> RebalanceValue:
        """Apply the record of a new epoch, and return its row. `found`: the causes of the epoch."""
        was_stable = memory.settled or _was_reconciled(group, memory)
        self._replay(record)
        memory.settled = not group.members
        if not group.members:
            memory.rebalance = None
        else:
            if memory.rebalance is None:
                memory.rebalance = PendingRebalance(position.timestamp_ms if was_stable else -1)
            memory.rebalance.add(found)
        base_offset = memory.first_offset
        memory.forget_batch(self._batch)
        return RebalanceValue(
            group_type=group.group_type,
            epoch=group.epoch,
            state="Assigning" if group.members else "Empty",
            started_ms=position.timestamp_ms,
            ended_ms=position.timestamp_ms,
            partition=self._partition,
            base_offset=base_offset,
            last_offset=position.offset,
            inferred=True,
            causes=tuple(found[:MOST_CAUSES]),
            causes_left_out=max(len(found) - MOST_CAUSES, 0),
        )


def changed_members(
    group: ModernGroup[MemberT], memory: Memory[MemberT]
) -> tuple[list[MemberT], list[tuple[MemberT | None, MemberT]]]:
    """Return departed members, and pairs (before, now) of the present members that this batch changed.

    A new static member is paired with the departed one that had its instance id, which then does not count as
    departed."""
    departed = [m for name, m in memory.members.items() if m is not None and name not in group.members]
    names = {m.instance_id: m for m in departed if m.instance_id is not None}
    present: list[tuple[MemberT | None, MemberT]] = []
    for member_id, before in memory.members.items():
        after = group.members.get(member_id)
        if after is None:
            continue
        if before is None and after.instance_id is not None:
            before = names.pop(after.instance_id, None)
            if before is not None:
                departed.remove(before)
        present.append((before, after))
    return departed, present


def _was_reconciled(group: ModernGroup[MemberT], memory: Memory[MemberT]) -> bool:
    """Return whether the group was reconciled or empty before this batch."""
    if group.epoch > group.assignment_epoch or group.behind - memory.members.keys():
        return False
    return all(m is None or m.is_reconciled_to(group.assignment_epoch) for m in memory.members.values())


def key_of(record: Record) -> Any:
    return record.key


def cause_of(kind: str, member: AuditedMember | None, position: Position, topic: str | None = None) -> Cause:
    return audit_members.cause_of(kind, position.timestamp_ms, member, topic=topic)
