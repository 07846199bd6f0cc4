"""Why a consumer group's epoch moved, told from its records. Pure.

`epochs` says which rows there are. The causes of an epoch are what else its batch says:

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

What is guessed: Kafka may put several requests into one batch; a static member that came back unchanged is
therefore no cause, and a member that changes twice before the epoch is taken to have changed once. A member
that prefers another assignor is named, not how the others were outvoted. Which topic changed cannot be seen
from a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved
from konvene.groups.consumer.log import replay
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

__all__ = ["ConsumerHistory"]


@dataclass(slots=True)
class _Memory(Memory):
    regexes: dict[str, Resolved | None] = field(default_factory=dict)
    """What this batch has touched since the last epoch in it, as it was before."""
    waiting: dict[str, Cause] = field(default_factory=dict)
    """Members whose expression nobody has resolved yet: no epoch was raised for them so far."""
    held: set[str] = field(default_factory=set)
    """Those of them that began to wait in this batch."""
    doubtful: set[str] = field(default_factory=set)
    """Those of whom it is not sure, behind this batch, that they are new."""

    def stop_waiting(self, member_id: str) -> None:
        self.waiting.pop(member_id, None)
        self.held.discard(member_id)
        self.doubtful.discard(member_id)

    def forget_batch(self, batch: int = -1, offset: int = -1) -> None:
        Memory.forget_batch(self, batch, offset)
        self.regexes.clear()
        self.held.clear()
        for member_id in self.doubtful:
            self.waiting.pop(member_id, None)
        self.doubtful.clear()

    def gap(self) -> None:
        Memory.gap(self)
        self.waiting.clear()
        self.held.clear()


class ConsumerHistory(HandedOver[ConsumerGroup, _Memory]):
    """The consumer groups of a partition."""

    group_type: ClassVar[str] = "consumer"

    def _begin(self, group_id: str) -> tuple[ConsumerGroup, _Memory]:
        return ConsumerGroup(group_id), _Memory()

    def _replay(self, record: Record) -> None:
        replay(self._groups, record)

    def _without_units(self, value: Any) -> Any:
        return value.replace(assigned_partitions=(), partitions_pending_revocation=())

    def _state(self, group: ConsumerGroup) -> str:
        return group.state.value

    # --- types of records of its own ---

    def _take_member(
        self, group: ConsumerGroup, memory: _Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
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
        regex = key_of(record).regular_expression
        memory.regexes.setdefault(regex, group.regexes.get(regex))
        replay(self._groups, record)
        return None

    # --- causes ---

    def _why(self, group: ConsumerGroup, memory: _Memory, value: Any, at: At) -> list[Cause]:
        """What the batch says before the new epoch, and who waited for that."""
        gone, new, changed = _changes(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, at) for m in gone]
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
        speaker = next((m for _, m in new if m.classic is None), None)
        found = self._upgraded(group, speaker, at) + found
        if found:
            return found
        if value.metadata_hash != group.metadata_hash:
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

    takes: ClassVar[Mapping[type, Take]] = {
        ConsumerGroupMetadataKey: EpochHistory._take_epoch,
        ConsumerGroupMemberMetadataKey: _take_member,
        ConsumerGroupTargetAssignmentMetadataKey: EpochHistory._take_assignment,
        ConsumerGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        ConsumerGroupRegularExpressionKey: _take_regex,
    }


def _changes(
    group: ConsumerGroup, memory: _Memory
) -> tuple[list[Member], list[tuple[str, Member]], list[tuple[str, Member]]]:
    """Who is gone, who is new and who changed since this batch began, with what that is called."""
    gone, there = changed_members(group, memory)
    new: list[tuple[str, Member]] = []
    changed: list[tuple[str, Member]] = []
    for before, after in there:
        if before is None:
            new.append((causes.MEMBER_JOINED, after))
        elif before.member_id != after.member_id:
            if _wants(before) != _wants(after):
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
