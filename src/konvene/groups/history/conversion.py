"""What logs tell of groups that go over from the classic protocol to one whose coordinator assigns, and back.

Each way is one batch: tombstones of what the group was, records of what it is. So within a batch it is
remembered of which groups the classic record went, and how groups of the other kind came to their end.

On the way there the first epoch is the generation that the group had, and no row: nothing has moved. The next
one, in the same batch, is `upgraded`. On the way back the record of the classic group is at the last epoch;
the generation behind it is `downgraded` (`reader`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from konvene.groups.history.modern import At, EpochHistory, Memory, cause_of
from konvene.groups.modern.group import ModernGroup
from konvene.records.audit import Cause
from konvene.shard import causes

__all__ = ["Ended", "HandedOver", "downgraded"]

G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Memory)


class Ended(NamedTuple):
    """A group whose coordinator assigned, and that came to its end."""

    members: list[Any]
    """Who was there before."""
    stale: bool
    """Whether it has to rebalance also where the last that spoke the new protocol is replaced."""


class HandedOver(EpochHistory[G, M]):
    """The groups of one kind in a partition, some of which were classic ones, or will be."""

    def __init__(self, partition: int, *, units: bool = False) -> None:
        super().__init__(partition, units=units)
        self._was_classic: set[str] = set()
        self._ended: dict[str, Ended] = {}

    def next_batch(self) -> None:
        super().next_batch()
        self._was_classic.clear()
        self._ended.clear()

    def classic_group_ended(self, group_id: str) -> None:
        """In this batch."""
        self._was_classic.add(group_id)

    def ended(self, group_id: str) -> Ended | None:
        """A group of this kind that came to its end in this batch, as it was before."""
        return self._ended.get(group_id)

    def _end(self, group: G, memory: M) -> None:
        before = {**group.members, **memory.members}
        members = [m for name in sorted(before) if (m := before[name]) is not None]
        self._ended[group.group_id] = Ended(members, self._is_stale(group, memory, members))
        super()._end(group, memory)

    def _is_stale(self, group: G, memory: M, before: list[Any]) -> bool:
        """Whether the last epoch had no target yet."""
        return memory.assignment_epoch < group.epoch

    def _takes_over(self, group: G, first: bool) -> bool:
        return group.group_id in self._was_classic and first and _all_are_classic(group)

    def _upgraded(self, group: G, speaker: Any, at: At) -> list[Cause]:
        """The cause, if this is the first epoch since the group was a classic one; `speaker` is the member
        for which it is none any more."""
        if group.group_id not in self._was_classic:
            return []
        self._was_classic.discard(group.group_id)
        return [cause_of(causes.UPGRADED, speaker, at)]


def _all_are_classic(group: Any) -> bool:
    return bool(group.members) and all(m.classic is not None for m in group.members.values())


def downgraded(ended: Ended, value: Any, at: At) -> list[Cause]:
    """Why a group's next generation comes, now that it is a classic group, of which `value` is the record.

    None comes of it where a static member took the place of the last that spoke the new protocol, and the
    targets were up to date; nor where nobody was in the group."""
    stay = {m.member_id for m in value.members}
    names = {m.group_instance_id for m in value.members if m.group_instance_id is not None}
    gone = [m for m in ended.members if m.member_id not in stay]
    replaced = {m.instance_id for m in gone if m.instance_id in names}
    if not ended.members or (replaced and not ended.stale):
        return []
    last = next((m for m in gone if m.classic is None), None)
    found = [cause_of(causes.DOWNGRADED, last, at)]
    found += [cause_of(causes.MEMBER_DEPARTED, m, at) for m in gone if m.instance_id not in replaced]
    found += [
        Cause(
            kind=causes.STATIC_MEMBER_REJOINS,
            at_ms=at.timestamp_ms,
            member_id=m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
        )
        for m in value.members
        if m.group_instance_id in replaced
    ]
    return found
