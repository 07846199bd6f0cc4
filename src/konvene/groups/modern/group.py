"""What all groups share whose coordinator assigns: members by id and by name, epochs, and who is behind.

A kind adds what its members have and what is counted of them (`_claim`, `_release`, `_count`). Members are
values; `put`, `have`, `drop` and `assigned_at` are called by the replay of records alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from konvene.errors import Errors
from konvene.shard.errors import GroupError

LEAVE_STATIC = -2
"""The epoch of a static member that has left for a while."""


class Member(Protocol):
    """A member of any of these kinds."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def current(self) -> Any: ...

    def having(self, current: Any) -> Any: ...

    def is_reconciled_to(self, epoch: int) -> bool: ...


M = TypeVar("M", bound=Member)


class ModernGroup(ABC, Generic[M]):
    """The books of members. The fields are those of each kind's own dataclass."""

    __slots__ = ()

    group_id: str
    epoch: int
    assignment_epoch: int
    assignment_timestamp_ms: int
    members: dict[str, M]
    instances: dict[str, str]
    behind: set[str]
    soft: Any

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str | None) -> M | None:
        """Who has this name."""
        holder = self.instances.get(instance_id) if instance_id is not None else None
        return None if holder is None else self.members[holder]

    # --- taken in by replay ---

    def put(self, member: M) -> None:
        """Add a member, or set one anew."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            if old.instance_id is not None and old.instance_id != member.instance_id:
                self._let_go_of_name(old)
        self._count(member, 1)
        if old is None or not self._same(old.current, member.current):
            self._move(member.member_id, old.current if old is not None else None, member.current)
        self._keep(member)

    def have(self, member: M, current: Any) -> None:
        """A member that is there has this now, and is else as it was.

        If it has the same again, somebody may have had it in between, in a log that says a thing twice."""
        if self._same(member.current, current):
            self._claim(member.member_id, current)
        else:
            self._move(member.member_id, member.current, current)
        self._keep(member.having(current))

    def drop(self, member_id: str) -> None:
        """Take a member out; nothing happens if it is none."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self._move(member_id, member.current, None)
        self._let_go_of_name(member)
        self.behind.discard(member_id)

    def assigned_at(self, epoch: int, timestamp_ms: int) -> None:
        """A target was computed for this epoch."""
        self.assignment_epoch = epoch  # type: ignore[misc]  # A slot of the kind's own.
        self.assignment_timestamp_ms = timestamp_ms  # type: ignore[misc]
        for member in self.members.values():
            self._see_whether_behind(member)

    def _move(self, member_id: str, old: Any, new: Any) -> None:
        """Note what a member has. What somebody else has by now stays with them."""
        if old is not None:
            self._release(member_id, old)
        if new is not None:
            self._claim(member_id, new)

    def _same(self, old: Any, new: Any) -> bool:
        """Whether two have the same, since the same epochs: then there is nothing to let go of."""
        same: bool = old.assigned == new.assigned and old.pending_revocation == new.pending_revocation
        return same

    @abstractmethod
    def _claim(self, member_id: str, current: Any) -> None:
        """What a member has, or has yet to give up, is its own."""

    @abstractmethod
    def _release(self, member_id: str, current: Any) -> None:
        """It is not any more, where nobody else has it by now."""

    def _count(self, member: M, step: int) -> None:
        """What else is counted of members: `step` more of these."""

    def _keep(self, member: M) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._see_whether_behind(member)

    def _see_whether_behind(self, member: M) -> None:
        if member.is_reconciled_to(self.assignment_epoch):
            self.behind.discard(member.member_id)
        else:
            self.behind.add(member.member_id)

    def _let_go_of_name(self, member: M) -> None:
        """Its instance id may be another member's already."""
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]


# --- who may speak ---------------------------------------------------------------------------------


def known_member(group: ModernGroup[M], member_id: str) -> M:
    """The member of that id. Raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise GroupError(
            Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def static_member(group: ModernGroup[M], member_id: str, instance_id: str) -> M:
    """The member of that name. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where it has another id."""
    holder = group.static_member(instance_id)
    if holder is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise GroupError(
            Errors.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )
    return holder


def unreleased(member_id: str, instance_id: str, holder: Member) -> GroupError:
    """To who joins under a name that somebody has and has not left."""
    return GroupError(
        Errors.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
        f"instance id is owned by {holder.member_id} member.",
    )


def fenced(kind: str, epoch: int, known: int) -> GroupError:
    """To who is at an epoch at which it may not be."""
    word = "greater" if epoch > known else "smaller"
    return GroupError(
        Errors.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {word} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def check_room(
    kind: str, group: ModernGroup[Any], most: int, member_id: str, instance_id: str | None
) -> None:
    """Whether one more may join. Raises GROUP_MAX_SIZE_REACHED."""
    if instance_id in group.instances or len(group.members) < most or member_id in group.members:
        return
    raise GroupError(
        Errors.GROUP_MAX_SIZE_REACHED,
        f"The {kind} group has reached its maximum capacity of {most} members.",
    )


# --- the common heartbeat --------------------------------------------------------------------------


class CachedHeartbeat:
    """What an accepted heartbeat of a settled member rests on: as long as it is there, the same again.

    Of what a group knows beside its log that is the `basis`: that a rebalance is over is nothing to tell."""

    __slots__ = ("assignment_epoch", "epoch", "group", "member", "soft")

    def __init__(self, group: ModernGroup[Any], member: Member) -> None:
        self.group = group
        self.member = member
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.soft = group.soft

    def holds(self, groups: Mapping[str, Any]) -> bool:
        group, soft = self.group, self.group.soft
        if soft is not self.soft:
            if soft.basis != self.soft.basis:
                return False
            self.soft = soft
        return (
            group.members.get(self.member.member_id) is self.member
            and group.epoch == self.epoch
            and group.assignment_epoch == self.assignment_epoch
            and groups.get(group.group_id) is group
        )
