"""Why a consumer group's epoch moved, and when all its members had followed: told from its records. Pure.

Two kinds of row come of it. A record of a new group epoch gives one in state Assigning or Empty, whose causes
are what else its batch says:

    a member of which nothing was known        member-joined; static-member-rejoins where its instance id was
                                               that of a member that went in the same batch
    a member that went                         member-gone
    other names or another expression          subscription-changed
    another assignor                           assignor-changed
    an expression that matches other topics    regex-refreshed; and the change of the members that waited for
                                               it: an expression that nobody used is resolved later
    the end of a classic group                 upgraded
    other topics (their hash) and no more      topic-metadata-changed
    nothing of all that                        unknown

The record of a member with which the last one is reconciled gives a row in state Stable, with the causes of
all epochs since the group was last stable.

What is guessed: that all that a batch says before an epoch belongs to it. Kafka may put several requests into
one batch; a static member that came back unchanged is therefore no cause, and a member that changes twice
before the epoch is taken to have changed once. A member that prefers another assignor is named, not how the
others were outvoted. Which topic changed cannot be seen from a hash.

There are rows only where nothing can be missing before them (`reader`): of a Stable row, before its epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konvene.groups import telling
from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved, State
from konvene.groups.consumer.log import replay
from konvene.groups.story import MOST_CAUSES
from konvene.groups.telling import came_out
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from konvene.records.coordinator import Record
from konvene.shard import causes

__all__ = ["TAKES", "At", "ConsumerHistory", "Ended", "cause_of"]


class At(NamedTuple):
    """Where a record stands."""

    offset: int
    timestamp_ms: int
    whole: bool
    """Whether nothing that was written before it can be missing."""


class Ended(NamedTuple):
    """A consumer group that came to its end."""

    members: list[Member]
    """Who was there before."""
    stale: bool
    """Whether its last epoch had no target yet."""


@dataclass(slots=True)
class _Story:
    """A rebalance under way."""

    started_ms: int
    targeted_ms: int = -1
    causes: list[Cause] = field(default_factory=list)
    causes_left_out: int = 0

    def add(self, found: Iterable[Cause]) -> None:
        told = [*self.causes, *found]
        self.causes_left_out += max(len(told) - MOST_CAUSES, 0)
        self.causes = told[:MOST_CAUSES]


@dataclass(slots=True)
class _Memory:
    """What is remembered of a group beside its state."""

    batch: int = -1
    first_offset: int = -1
    assignment_epoch: int = -1
    """Before the batch."""
    members: dict[str, Member | None] = field(default_factory=dict)
    """Whom this batch has touched since the last epoch in it, as they were before; None: they were not."""
    latest: str = ""
    """The last of them."""
    regexes: dict[str, Resolved | None] = field(default_factory=dict)
    """The same of expressions."""
    waiting: dict[str, Cause] = field(default_factory=dict)
    """Members whose expression nobody has resolved yet: no epoch was raised for them so far."""
    held: set[str] = field(default_factory=set)
    """Those of them that began to wait in this batch."""
    doubtful: set[str] = field(default_factory=set)
    """Those of whom it is not sure, behind this batch, that they are new."""
    has_epoch: bool = False
    """Whether a record of the group's epoch was seen."""
    settled: bool = False
    """Whether the group was stable or empty since its last epoch."""
    story: _Story | None = None
    reached_ms: dict[str, int] = field(default_factory=dict)
    """By member id, when it was reconciled to the target."""

    def stop_waiting(self, member_id: str) -> None:
        self.waiting.pop(member_id, None)
        self.held.discard(member_id)
        self.doubtful.discard(member_id)

    def forget_batch(self, batch: int = -1, offset: int = -1) -> None:
        self.batch, self.first_offset = batch, offset
        self.members.clear()
        self.latest = ""
        self.regexes.clear()
        self.held.clear()
        for member_id in self.doubtful:
            self.waiting.pop(member_id, None)
        self.doubtful.clear()


class ConsumerHistory:
    """The consumer groups of a partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._groups: dict[str, Any] = {}
        self._memories: dict[str, _Memory] = {}
        self._batch = 0
        self._was_classic: set[str] = set()
        self._ended: dict[str, Ended] = {}

    def __repr__(self) -> str:
        return f"<history of {len(self._groups)} consumer groups>"

    # --- what the reader of the whole partition tells and asks ---

    def next_batch(self) -> None:
        self._batch += 1
        self._was_classic.clear()
        self._ended.clear()

    def gap(self) -> None:
        """Something may be missing here: what was under way cannot be told to its end."""
        for memory in self._memories.values():
            memory.story, memory.settled = None, False
            memory.waiting.clear()
            memory.held.clear()

    def classic_group_ended(self, group_id: str) -> None:
        """In this batch."""
        self._was_classic.add(group_id)

    def ended(self, group_id: str) -> Ended | None:
        """A consumer group that came to its end in this batch, as it was before."""
        return self._ended.get(group_id)

    def forget(self, group_id: str) -> None:
        """The group is of another type by now."""
        self._groups.pop(group_id, None)
        self._memories.pop(group_id, None)

    def take(self, record: Record, at: At) -> RebalanceValue | None:
        """Take in a record of a type in `TAKES`; the row that it gives."""
        key: Any = record.key
        group = self._groups.get(key.group_id)
        if group is None:
            if record.value is None:
                return None
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id)
            self._memories[key.group_id] = _Memory()
        memory = self._memories[key.group_id]
        if memory.batch != self._batch:
            memory.forget_batch(self._batch, at.offset)
            memory.assignment_epoch = group.assignment_epoch
        return TAKES[type(key)](self, group, memory, record, at)

    # --- one for each type of record ---

    def _take_member(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = _key(record).member_id
        before = group.members.get(member_id)
        memory.members.setdefault(member_id, before)
        memory.latest = member_id
        replay(self._groups, record)
        member = group.members.get(member_id)
        if member is None:
            memory.stop_waiting(member_id)
            memory.reached_ms.pop(member_id, None)
        elif before is None or (before.topics, before.regex) != (member.topics, member.regex):
            memory.stop_waiting(member_id)
            alone = member.topics == (before.topics if before is not None else frozenset())
            if alone and member.regex and member.regex not in group.regexes:
                memory.held.add(member_id)
                if not at.whole:
                    memory.doubtful.add(member_id)
                memory.waiting[member_id] = cause_of(_change(group, memory, member, before), member, at)
        return None

    def _take_regex(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        regex = _key(record).regular_expression
        memory.regexes.setdefault(regex, group.regexes.get(regex))
        replay(self._groups, record)
        return None

    def _take_assignment(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        replay(self._groups, record)
        memory.reached_ms.clear()
        if memory.story is not None:
            memory.story.targeted_ms = at.timestamp_ms
        return None

    def _take_current(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = _key(record).member_id
        value: Any = record.value
        if value is None:
            memory.members.setdefault(member_id, group.members.get(member_id))
        else:  # Who holds which partition makes no difference here.
            value = value.replace(assigned_partitions=(), partitions_pending_revocation=())
        replay(self._groups, Record(record.key, value))
        member = group.members.get(member_id)
        if member is None or not member.is_reconciled_to(group.assignment_epoch):
            memory.reached_ms.pop(member_id, None)
            return None
        memory.reached_ms.setdefault(member_id, at.timestamp_ms)
        if not at.whole or group.state is not State.STABLE:
            return None
        memory.settled = True
        story, memory.story = memory.story, None
        return None if story is None else self._stable(group, memory, story, at)

    def _stable(self, group: ConsumerGroup, memory: _Memory, story: _Story, at: At) -> RebalanceValue:
        return RebalanceValue(
            group_type="consumer",
            epoch=group.assignment_epoch,
            state=State.STABLE.value,
            started_ms=story.started_ms,
            joined_ms=story.targeted_ms,
            ended_ms=at.timestamp_ms,
            partition=self._partition,
            base_offset=at.offset,
            last_offset=at.offset,
            inferred=True,
            causes=tuple(story.causes),
            causes_left_out=story.causes_left_out,
            members=tuple(
                came_out(m, memory.reached_ms.get(m.member_id, -1)) for _, m in sorted(group.members.items())
            ),
        )

    def _take_epoch(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        value: Any = record.value
        if value is None:
            before = {**group.members, **memory.members}
            members = [m for name in sorted(before) if (m := before[name]) is not None]
            self._ended[group.group_id] = Ended(members, memory.assignment_epoch < group.epoch)
            self.forget(group.group_id)
            return None
        first, rise = not memory.has_epoch, value.epoch - group.epoch
        memory.has_epoch = True
        if group.group_id in self._was_classic and first and _all_are_classic(group):
            replay(self._groups, record)  # The epoch is the generation that the classic group had.
            memory.settled = True
            memory.forget_batch(self._batch, at.offset + 1)
            return None
        if rise == 0 and not first:
            replay(self._groups, record)
            return None
        if not at.whole:
            replay(self._groups, record)
            memory.settled, memory.story = False, None
            memory.forget_batch(self._batch, at.offset + 1)
            return None
        found = self._why(group, memory, value.metadata_hash, at) if rise == 1 or first else []
        return self._moved(group, memory, record, found or [Cause(kind=causes.UNKNOWN)], at)

    def _moved(
        self, group: ConsumerGroup, memory: _Memory, record: Record, found: list[Cause], at: At
    ) -> RebalanceValue:
        """The group has a new epoch."""
        was_stable = memory.settled or _stood_still(group, memory)
        replay(self._groups, record)
        memory.settled = not group.members
        if not group.members:
            memory.story = None
        else:
            if memory.story is None:
                memory.story = _Story(at.timestamp_ms if was_stable else -1)
            memory.story.add(found)
        base_offset = memory.first_offset
        memory.forget_batch(self._batch, at.offset + 1)
        return RebalanceValue(
            group_type="consumer",
            epoch=group.epoch,
            state=(State.ASSIGNING if group.members else State.EMPTY).value,
            started_ms=at.timestamp_ms,
            ended_ms=at.timestamp_ms,
            partition=self._partition,
            base_offset=base_offset,
            last_offset=at.offset,
            inferred=True,
            causes=tuple(found[:MOST_CAUSES]),
            causes_left_out=max(len(found) - MOST_CAUSES, 0),
        )

    # --- causes ---

    def _why(self, group: ConsumerGroup, memory: _Memory, metadata_hash: int, at: At) -> list[Cause]:
        """What the batch says before the new epoch, and who waited for that."""
        gone, new, changed = _changes(group, memory)
        found = [cause_of(causes.MEMBER_GONE, m, at) for m in gone]
        found += [cause_of(kind, m, at) for kind, m in new + changed if m.member_id not in memory.held]
        resolved = [name for name, old in memory.regexes.items() if old is None and name in group.regexes]
        waited = [name for name in memory.waiting if group.members[name].regex in resolved]
        refreshed = _refreshed(group, memory, at)
        if (
            refreshed
        ):  # Else they waited for an expression that matches nothing: no epoch was raised for that.
            found += [memory.waiting[name] for name in waited]
        for member_id in waited:
            memory.stop_waiting(member_id)
        found += refreshed
        if group.group_id in self._was_classic:
            self._was_classic.discard(group.group_id)
            speaker = next((m for _, m in new if m.classic is None), None)
            found.insert(0, cause_of(causes.UPGRADED, speaker, at))
        if found:
            return found
        if metadata_hash != group.metadata_hash:
            return [cause_of(causes.TOPIC_METADATA_CHANGED, None, at)]
        return self._preferred(group, memory, at)

    def _preferred(self, group: ConsumerGroup, memory: _Memory, at: At) -> list[Cause]:
        """The member whose record stands before the epoch made another assignor the preferred one."""
        if memory.latest in memory.held:  # A new one, whose expression is not resolved yet.
            memory.held.discard(memory.latest)
            return [memory.waiting.pop(memory.latest)]
        before, after = memory.members.get(memory.latest), group.members.get(memory.latest)
        if before is None or after is None or before.assignor == after.assignor:
            return []
        return [cause_of(causes.ASSIGNOR_CHANGED, after, at)]


def _changes(
    group: ConsumerGroup, memory: _Memory
) -> tuple[list[Member], list[tuple[str, Member]], list[tuple[str, Member]]]:
    """Who is gone, who is new and who changed since this batch began, with what that is called."""
    gone = [m for name, m in memory.members.items() if m is not None and name not in group.members]
    names = {m.instance_id: m for m in gone if m.instance_id is not None}
    new: list[tuple[str, Member]] = []
    changed: list[tuple[str, Member]] = []
    for member_id, before in memory.members.items():
        after = group.members.get(member_id)
        if after is None:
            continue
        if before is None:
            instead_of = names.pop(after.instance_id, None) if after.instance_id is not None else None
            if instead_of is None:
                new.append((causes.MEMBER_JOINED, after))
                continue
            gone.remove(instead_of)
            if _wants(instead_of) != _wants(after):
                new.append((causes.STATIC_MEMBER_REJOINS, after))
        elif (before.topics, before.regex) != (after.topics, after.regex):
            changed.append((causes.SUBSCRIPTION_CHANGED, after))
    return gone, new, changed


def _change(group: ConsumerGroup, memory: _Memory, member: Member, before: Member | None) -> str:
    """What it is called that a member is there, with an expression that it did not have."""
    if before is not None:
        return causes.SUBSCRIPTION_CHANGED
    gone = (m for name, m in memory.members.items() if m is not None and name not in group.members)
    back = member.instance_id is not None and any(m.instance_id == member.instance_id for m in gone)
    return causes.STATIC_MEMBER_REJOINS if back else causes.MEMBER_JOINED


def _wants(member: Member) -> object:
    return (member.topics, member.regex, member.assignor)


def _refreshed(group: ConsumerGroup, memory: _Memory, at: At) -> list[Cause]:
    """One cause for all expressions that match other topics now; it names the topic if that is one."""
    different: set[str] = set()
    for regex, old in memory.regexes.items():
        now = group.regexes.get(regex)
        if now is not None:
            different |= now.topics ^ (old.topics if old is not None else frozenset())
    if not different:
        return []
    topic = next(iter(different)) if len(different) == 1 else None
    return [cause_of(causes.REGEX_REFRESHED, None, at, topic)]


def _all_are_classic(group: ConsumerGroup) -> bool:
    return bool(group.members) and all(m.classic is not None for m in group.members.values())


def _stood_still(group: ConsumerGroup, memory: _Memory) -> bool:
    """Whether the group was stable or empty before this batch."""
    if group.epoch > group.assignment_epoch or group.behind - memory.members.keys():
        return False
    return all(m is None or m.is_reconciled_to(group.assignment_epoch) for m in memory.members.values())


def _key(record: Record) -> Any:
    return record.key


def cause_of(kind: str, member: Member | None, at: At, topic: str | None = None) -> Cause:
    return telling.cause_of(kind, at.timestamp_ms, member, topic=topic)


Take = Callable[[ConsumerHistory, ConsumerGroup, _Memory, Record, At], RebalanceValue | None]

TAKES: dict[type, Take] = {
    ConsumerGroupMetadataKey: ConsumerHistory._take_epoch,
    ConsumerGroupMemberMetadataKey: ConsumerHistory._take_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerHistory._take_assignment,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerHistory._take_current,
    ConsumerGroupRegularExpressionKey: ConsumerHistory._take_regex,
}
"""By the type of a record's key."""
