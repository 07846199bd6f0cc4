"""Infer why a consumer group's epoch was bumped from its records, without I/O.

`modern` defines when there is a row. The causes of an epoch are the other records of its batch:

    record                                     cause
    a new member                               member-joined, unless a member with its instance id departed
                                               in the same batch: then it is that member
    a member's tombstone                       MEMBER_DEPARTED
    other topic names or expression            subscription-changed
    another assignor                           assignor-changed
    an expression that matches other topics    regex-refreshed; and the changes of members that waited for it,
                                               as new expressions are resolved later
    the tombstone of a classic group           upgraded
    only another metadata hash                 topic-metadata-changed
    none of these                              unknown

Assumptions: Kafka may put several requests into one batch. A static member that rejoined unchanged is
therefore no cause, and several changes of a member before the epoch count as one. A member that prefers
another assignor is named, although the preferences of others count as well. A hash does not show which topic
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved
from konvene.groups.consumer.log import RECORDS
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
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from konvene.records.coordinator import Record
from konvene.shard import causes

__all__ = ["ConsumerHistory"]


@dataclass(slots=True)
class _Memory(Memory[Member]):
    regexes: dict[str, Resolved | None] = field(default_factory=dict)
    """The expressions that this batch changed since its last epoch, as they were before; None: new."""
    waiting: dict[str, Cause] = field(default_factory=dict)
    """Members whose new expression is not resolved yet, so that no epoch was bumped for it, and their
    cause."""
    held: set[str] = field(default_factory=set)
    """Ids in `waiting` whose expression is new in this batch."""
    doubtful: set[str] = field(default_factory=set)
    """Ids in `waiting` whose record may not be a change, since records before it may be missing."""

    def stop_waiting(self, member_id: str) -> None:
        self.waiting.pop(member_id, None)
        self.held.discard(member_id)
        self.doubtful.discard(member_id)

    def forget_batch(self, batch: int = -1) -> None:
        Memory.forget_batch(self, batch)
        self.regexes.clear()
        self.held.clear()
        for member_id in self.doubtful:
            self.waiting.pop(member_id, None)
        self.doubtful.clear()

    def gap(self) -> None:
        Memory.gap(self)
        self.waiting.clear()
        self.held.clear()


class ConsumerHistory(ConvertibleHistory[ConsumerGroup, _Memory]):
    """A reader that infers the rebalances of a partition's consumer groups from their records."""

    records = RECORDS
    new_memory = _Memory

    def _without_units(
        self, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> ConsumerGroupCurrentMemberAssignmentValue:
        return value.replace(assigned_partitions=(), partitions_pending_revocation=())

    # --- record handlers ---

    def _take_member(
        self, group: ConsumerGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        before = group.members.get(member_id)
        super()._take_member(group, memory, record, position)
        member = group.members.get(member_id)
        if member is None:
            memory.stop_waiting(member_id)
        elif before is None or (before.topics, before.regex) != (member.topics, member.regex):
            memory.stop_waiting(member_id)
            only_regex = member.topics == (before.topics if before is not None else frozenset())
            if only_regex and member.regex and member.regex not in group.regexes:
                memory.held.add(member_id)
                if not position.complete:
                    memory.doubtful.add(member_id)
                known = before if before is not None else _replaced(group, memory, member)
                memory.waiting[member_id] = cause_of(_change(known), member, position)
        return None

    def _take_regex(
        self, group: ConsumerGroup, memory: _Memory, record: Record, position: Position
    ) -> RebalanceValue | None:
        regex = key_of(record).regular_expression
        memory.regexes.setdefault(regex, group.regexes.get(regex))
        self._replay(record)
        return None

    # --- causes ---

    def _infer_causes(
        self, group: ConsumerGroup, memory: _Memory, value: ConsumerGroupMetadataValue, position: Position
    ) -> list[Cause]:
        """Return the causes of an epoch: those in its batch, and changes that waited for an expression.

        Such a change is that of a member whose new expression was resolved only in this batch."""
        departed, present = changed_members(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, position) for m in departed]
        found += [
            cause_of(_change(before), after, position)
            for before, after in present
            if after.member_id not in memory.held and _has_changed(before, after)
        ]
        resolved = [name for name, old in memory.regexes.items() if old is None and name in group.regexes]
        waited = [name for name in memory.waiting if group.members[name].regex in resolved]
        refreshed = _refreshed(group, memory, position)
        if refreshed:  # Otherwise their expression matches nothing, and did not bump the epoch.
            found += [memory.waiting[name] for name in waited]
        for member_id in waited:
            memory.stop_waiting(member_id)
        found += refreshed
        if any(before is not None for before, _ in present) or departed or len(group.members) > len(present):
            upgrader = upgrader_of(present)
            upgraded = self._upgraded(group, upgrader, position)
            if upgraded and upgrader is not None and upgrader.member_id in memory.held:
                upgraded.append(memory.waiting[upgrader.member_id])  # The epoch is also that of its join.
                memory.stop_waiting(upgrader.member_id)
            found = upgraded + found
        if found:
            return found
        if value.metadata_hash != group.metadata_hash:
            return [cause_of(causes.TOPIC_METADATA_CHANGED, None, position)]
        return self._preferred(memory, present, position)

    def _preferred(
        self, memory: _Memory, present: Iterable[tuple[Member | None, Member]], position: Position
    ) -> list[Cause]:
        """Return a change of preferred assignor as the cause of an epoch that nothing else explains, if any.

        `present`: the members that the batch changed, before and after. The change is that of the member
        whose record came last before the epoch. If that is a member whose new
        expression is not resolved yet, its join or change of subscription is the cause."""
        if memory.latest in memory.held:  # A new member whose expression is not resolved yet.
            memory.held.discard(memory.latest)
            return [memory.waiting.pop(memory.latest)]
        return [
            cause_of(causes.ASSIGNOR_CHANGED, after, position)
            for before, after in present
            if after.member_id == memory.latest and before is not None and before.assignor != after.assignor
        ]

    handlers: ClassVar[Mapping[type, RecordHandler]] = {
        ConsumerGroupMetadataKey: EpochHistory._take_epoch,
        ConsumerGroupMemberMetadataKey: _take_member,
        ConsumerGroupTargetAssignmentMetadataKey: EpochHistory._take_assignment,
        ConsumerGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        ConsumerGroupRegularExpressionKey: _take_regex,
    }


def _change(before: Member | None) -> str:
    """Return the kind of cause for a member with a new subscription, given the member before: it joined, or
    changed it. A static member that rejoins counts as the same member."""
    return causes.MEMBER_JOINED if before is None else causes.SUBSCRIPTION_CHANGED


def _has_changed(before: Member | None, after: Member) -> bool:
    return before is None or (before.topics, before.regex) != (after.topics, after.regex)


def _replaced(group: ConsumerGroup, memory: _Memory, member: Member) -> Member | None:
    """Return the static member with the same instance id that departed in this batch, if any."""
    departed = (m for name, m in memory.members.items() if m is not None and name not in group.members)
    return next((m for m in departed if m.instance_id == member.instance_id is not None), None)


def _refreshed(group: ConsumerGroup, memory: _Memory, position: Position) -> list[Cause]:
    """Return one cause if expressions match other topics than before this batch, else none.

    It names the topic if only one differs."""
    different: set[str] = set()
    for regex, old in memory.regexes.items():
        now = group.regexes.get(regex)
        if now is not None:
            different |= now.topics ^ (old.topics if old is not None else frozenset())
    if not different:
        return []
    topic = next(iter(different)) if len(different) == 1 else None
    return [cause_of(causes.REGEX_REFRESHED, None, position, topic)]
