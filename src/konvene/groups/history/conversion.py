"""Infer conversions of groups between the classic protocol and the consumer or streams protocol.

Each conversion is one batch: tombstones of the old group, records of the new one. So within a batch this
module remembers which classic groups were deleted, and how groups of the other types ended.

After an upgrade the first epoch is the generation that the group had, and has no row: no assignment changed.
The next one, in the same batch, is `upgraded`. After a downgrade the record of the classic group has the last
epoch as its generation; the next generation is `downgraded` (`reader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from konvene.groups.audit_members import AuditedMember
from konvene.groups.history.modern import EpochHistory, Memory, Position, cause_of
from konvene.groups.modern.group import Member, ModernGroup
from konvene.records.audit import Cause
from konvene.records.classic import GroupMetadataValue
from konvene.shard import causes

__all__ = ["ConvertibleHistory", "EndedGroup", "downgrade_causes", "upgrader_of"]

G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Memory[Any])
MemberT = TypeVar("MemberT", bound=Member)


class EndedGroup(NamedTuple):
    """A consumer or streams group that was deleted in the present batch."""

    members: Sequence[Member]
    """The members that it had before the batch."""
    stale: bool
    """Whether it had yet to rebalance, so that the classic group has to."""


class ConvertibleHistory(EpochHistory[G, M]):
    """An `EpochHistory` of a type of groups that classic groups can be converted to, and back."""

    def __init__(self, partition: int, *, units: bool = False) -> None:
        super().__init__(partition, units=units)
        self._was_classic: set[str] = set()
        self._ended: dict[str, EndedGroup] = {}

    def next_batch(self) -> None:
        super().next_batch()
        if self._was_classic:
            self._was_classic.clear()
        if self._ended:
            self._ended.clear()

    def classic_group_ended(self, group_id: str) -> None:
        """Called for the tombstone of a classic group: remember that it was deleted in this batch."""
        self._was_classic.add(group_id)

    def ended(self, group_id: str) -> EndedGroup | None:
        """Return the members of a group that was deleted in this batch, and whether it had yet to rebalance.

        None if this batch deleted no group with this id."""
        return self._ended.get(group_id)

    def _end(self, group: G, memory: M) -> None:
        before = {**group.members, **memory.members}
        members = [m for name in sorted(before) if (m := before[name]) is not None]
        self._ended[group.group_id] = EndedGroup(members, self._is_stale(group, memory, members))
        super()._end(group, memory)

    def _is_stale(self, group: G, memory: M, before: list[Any]) -> bool:
        """Return whether a group that ended still had to rebalance: its last epoch had no target.

        `before`: the members that it had before the batch in which it ended."""
        return memory.assignment_epoch < group.epoch

    def _is_conversion(self, group: G, first: bool) -> bool:
        return group.group_id in self._was_classic and first and _all_are_classic(group)

    def _upgraded(self, group: G, upgrader: AuditedMember | None, position: Position) -> list[Cause]:
        """Return the cause `upgraded` if this is the first epoch since the group was a classic one.

        `upgrader`: the member of the new protocol that joined."""
        if group.group_id not in self._was_classic:
            return []
        self._was_classic.discard(group.group_id)
        return [cause_of(causes.UPGRADED, upgrader, position)]


def _all_are_classic(group: ModernGroup[Any]) -> bool:
    return bool(group.members) and all(m.classic is not None for m in group.members.values())


def upgrader_of(present: Iterable[tuple[MemberT | None, MemberT]]) -> MemberT | None:
    """Return the first changed member that uses the new protocol, and is new or did not use it before.

    `present`: the members that a batch changed, before and after."""
    return next((m for old, m in present if m.classic is None and (old is None or old.classic)), None)


def downgrade_causes(ended: EndedGroup, value: GroupMetadataValue, position: Position) -> list[Cause]:
    """Return the causes of the first rebalance of a classic group after a downgrade.

    `ended`: the group before it; `value`: the record of the classic group. There are no causes if the group
    was empty, or if a static member replaced the last member of the new protocol and the targets were up to
    date."""
    remaining = {m.member_id for m in value.members}
    instance_ids = {m.group_instance_id for m in value.members if m.group_instance_id is not None}
    departed = [m for m in ended.members if m.member_id not in remaining]
    replaced = {m.instance_id for m in departed if m.instance_id in instance_ids}
    if not ended.members or (replaced and not ended.stale):
        return []
    last = next((m for m in departed if m.classic is None), None)
    found = [cause_of(causes.DOWNGRADED, last, position)]
    found += [
        cause_of(causes.MEMBER_DEPARTED, m, position) for m in departed if m.instance_id not in replaced
    ]
    found += [
        Cause(
            kind=causes.STATIC_MEMBER_REJOINS,
            at_ms=position.timestamp_ms,
            member_id=m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
        )
        for m in value.members
        if m.group_instance_id in replaced
    ]
    return found
