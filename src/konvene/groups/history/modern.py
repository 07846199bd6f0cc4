"""What logs tell of every kind of group whose coordinator assigns: epochs, and when all had followed. Pure.

Two kinds of row come of it. A record of a new group epoch gives one in state Assigning or Empty; why the
epoch moved is for each kind to say (`consumer`, `streams`) by what else the batch says. The record of a
member with which the last one is reconciled gives a row in the state that the group is in then, with the
causes of all epochs since.

What is guessed: that all that a batch says before an epoch belongs to it.

There are rows only where nothing can be missing before them (`reader`): of a Stable row, before its epochs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from konvene.groups import audit_members
from konvene.groups.audit_members import AuditedMember, rebalanced_member
from konvene.groups.modern.group import ModernGroup
from konvene.groups.modern.rebalance_trace import MOST_CAUSES
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard import causes

__all__ = ["At", "EpochHistory", "Memory", "Story", "Take", "cause_of", "changed_members", "key_of"]


class At(NamedTuple):
    """Where a record stands."""

    offset: int
    timestamp_ms: int
    whole: bool
    """Whether nothing that was written before it can be missing."""


@dataclass(slots=True)
class Story:
    """A rebalance under way."""

    started_ms: int
    targeted_ms: int = -1
    causes: list[Cause] = field(default_factory=list)
    causes_left_out: int = 0
    moved: tuple[int, ...] = ()
    """As in a row of the audit."""

    def add(self, found: Iterable[Cause]) -> None:
        told = [*self.causes, *found]
        self.causes_left_out += max(len(told) - MOST_CAUSES, 0)
        self.causes = told[:MOST_CAUSES]


@dataclass(slots=True)
class Memory:
    """What is remembered of a group beside its state."""

    batch: int = -1
    first_offset: int = -1
    assignment_epoch: int = -1
    """Before the batch."""
    members: dict[str, Any] = field(default_factory=dict)
    """Whom this batch has touched since the last epoch in it, as they were before; None: they were not."""
    latest: str = ""
    """The last of them."""
    has_epoch: bool = False
    """Whether a record of the group's epoch was seen."""
    settled: bool = False
    """Whether the group was stable or empty since its last epoch."""
    story: Story | None = None
    reached_ms: dict[str, int] = field(default_factory=dict)
    """By member id, when it was reconciled to the target."""

    def forget_batch(self, batch: int = -1, offset: int = -1) -> None:
        self.batch, self.first_offset = batch, offset
        self.members.clear()
        self.latest = ""

    def gap(self) -> None:
        """Something may be missing here: what was under way cannot be told to its end."""
        self.story, self.settled = None, False


G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Memory)
Take = Callable[..., RebalanceValue | None]


class EpochHistory(ABC, Generic[G, M]):
    """The groups of one kind in a partition."""

    group_type: ClassVar[str]
    takes: ClassVar[Mapping[type, Take]]
    """What is done with a record, by the type of its key."""

    def __init__(self, partition: int, *, units: bool = False) -> None:
        self._partition = partition
        self._units = units
        self._groups: dict[str, Any] = {}
        self._memories: dict[str, M] = {}
        self._batch = 0

    def __repr__(self) -> str:
        return f"<history of {len(self._groups)} {self.group_type} groups>"

    # --- what a kind is ---

    @abstractmethod
    def _begin(self, group_id: str) -> tuple[G, M]:
        """A group of which nothing is known yet."""

    @abstractmethod
    def _replay(self, record: Record) -> None:
        """Take a record into its group."""

    @abstractmethod
    def _without_units(self, value: Any) -> Any:
        """What a member has, without partitions or tasks: who holds which makes no difference here."""

    @abstractmethod
    def _why(self, group: G, memory: M, value: Any, at: At) -> list[Cause]:
        """What the batch says before a new epoch; `value` is the epoch's."""

    @abstractmethod
    def _state(self, group: G) -> str:
        """The state of a group whose members are all reconciled with its epoch, or that has none."""

    def _takes_over(self, group: G, first: bool) -> bool:
        """Whether an epoch is none of its own, but the generation of the group that it was before."""
        return False

    # --- what the reader of the whole partition tells and asks ---

    def next_batch(self) -> None:
        self._batch += 1

    def gap(self) -> None:
        """Something may be missing here."""
        for memory in self._memories.values():
            memory.gap()

    def forget(self, group_id: str) -> None:
        """The group is of another type by now, or is gone."""
        self._groups.pop(group_id, None)
        self._memories.pop(group_id, None)

    def group(self, group_id: str) -> G | None:
        """The group as it is now; who has what in it only where that is kept."""
        return self._groups.get(group_id)

    def take_beside(self, record: Record) -> None:
        """Take in a record from which no row ever follows."""
        group_id = key_of(record).group_id
        if record.value is not None and group_id not in self._groups:
            self._groups[group_id], self._memories[group_id] = self._begin(group_id)
        self._replay(record)

    def take(self, record: Record, at: At) -> RebalanceValue | None:
        """Take in a record of a type in `takes`; the row that it gives."""
        key: Any = record.key
        group = self._groups.get(key.group_id)
        if group is None:
            if record.value is None:
                return None
            group, memory = self._begin(key.group_id)
            self._groups[key.group_id], self._memories[key.group_id] = group, memory
        memory = self._memories[key.group_id]
        if memory.batch != self._batch:
            memory.forget_batch(self._batch, at.offset)
            memory.assignment_epoch = group.assignment_epoch
        return self.takes[type(key)](self, group, memory, record, at)

    # --- one for each type of record ---

    def _take_assignment(self, group: G, memory: M, record: Record, at: At) -> RebalanceValue | None:
        self._replay(record)
        memory.reached_ms.clear()
        if memory.story is not None:
            memory.story.targeted_ms = at.timestamp_ms
        return None

    def _take_current(self, group: G, memory: M, record: Record, at: At) -> RebalanceValue | None:
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
        memory.reached_ms.setdefault(member_id, at.timestamp_ms)
        if not at.whole or group.behind or group.epoch > group.assignment_epoch:
            return None
        memory.settled = True
        story, memory.story = memory.story, None
        return None if story is None else self._stable(group, memory, story, at)

    def _stable(self, group: G, memory: M, story: Story, at: At) -> RebalanceValue:
        return RebalanceValue(
            group_type=self.group_type,
            epoch=group.assignment_epoch,
            state=self._state(group),
            started_ms=story.started_ms,
            joined_ms=story.targeted_ms,
            ended_ms=at.timestamp_ms,
            partition=self._partition,
            base_offset=at.offset,
            last_offset=at.offset,
            inferred=True,
            causes=tuple(story.causes),
            causes_left_out=story.causes_left_out,
            moved=story.moved if story.started_ms >= 0 else (),  # Else there were targets before.
            members=tuple(
                rebalanced_member(m, memory.reached_ms.get(m.member_id, -1))
                for _, m in sorted(group.members.items())
            ),
        )

    def _take_epoch(self, group: G, memory: M, record: Record, at: At) -> RebalanceValue | None:
        value: Any = record.value
        if value is None:
            self._end(group, memory)
            return None
        first, rise = not memory.has_epoch, value.epoch - group.epoch
        memory.has_epoch = True
        if self._takes_over(group, first):
            self._replay(record)
            memory.settled = True
            memory.forget_batch(self._batch, at.offset + 1)
            return None
        if rise == 0 and not first:
            self._replay(record)
            return None
        if not at.whole:
            self._replay(record)
            memory.settled, memory.story = False, None
            memory.forget_batch(self._batch, at.offset + 1)
            return None
        found = self._why(group, memory, value, at) if rise == 1 or first else []
        return self._moved(group, memory, record, found or [Cause(kind=causes.UNKNOWN)], at)

    def _end(self, group: G, memory: M) -> None:
        """The group is gone."""
        self.forget(group.group_id)

    def _moved(self, group: G, memory: M, record: Record, found: list[Cause], at: At) -> RebalanceValue:
        """The group has a new epoch."""
        was_stable = memory.settled or _stood_still(group, memory)
        self._replay(record)
        memory.settled = not group.members
        if not group.members:
            memory.story = None
        else:
            if memory.story is None:
                memory.story = Story(at.timestamp_ms if was_stable else -1)
            memory.story.add(found)
        base_offset = memory.first_offset
        memory.forget_batch(self._batch, at.offset + 1)
        return RebalanceValue(
            group_type=self.group_type,
            epoch=group.epoch,
            state="Assigning" if group.members else "Empty",
            started_ms=at.timestamp_ms,
            ended_ms=at.timestamp_ms,
            partition=self._partition,
            base_offset=base_offset,
            last_offset=at.offset,
            inferred=True,
            causes=tuple(found[:MOST_CAUSES]),
            causes_left_out=max(len(found) - MOST_CAUSES, 0),
        )


def changed_members(group: ModernGroup[Any], memory: Memory) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """Who is gone since this batch began, and who is there that it has touched, with who they were before.

    A static member that is new was the one that went, if that had its name: it is not gone."""
    gone = [m for name, m in memory.members.items() if m is not None and name not in group.members]
    names = {m.instance_id: m for m in gone if m.instance_id is not None}
    there: list[tuple[Any, Any]] = []
    for member_id, before in memory.members.items():
        after = group.members.get(member_id)
        if after is None:
            continue
        if before is None and after.instance_id is not None:
            before = names.pop(after.instance_id, None)
            if before is not None:
                gone.remove(before)
        there.append((before, after))
    return gone, there


def _stood_still(group: ModernGroup[Any], memory: Memory) -> bool:
    """Whether the group was stable or empty before this batch."""
    if group.epoch > group.assignment_epoch or group.behind - memory.members.keys():
        return False
    return all(m is None or m.is_reconciled_to(group.assignment_epoch) for m in memory.members.values())


def key_of(record: Record) -> Any:
    return record.key


def cause_of(kind: str, member: AuditedMember | None, at: At, topic: str | None = None) -> Cause:
    return audit_members.cause_of(kind, at.timestamp_ms, member, topic=topic)
