"""The common part of consumer, share and streams groups: members, epochs, and members behind their target.

There are three epochs. The group's epoch is bumped when an input of assignments changes. The assignment epoch
is the group epoch for which the last target assignment was computed. A member's epoch advances when it has
revoked what is not in its target. No member's epoch exceeds the assignment epoch, which never exceeds the
group's.

Members are frozen values. A group is changed in place, and by the replay of records alone (`put`,
`set_current`, `drop`, `set_assignment_epoch`); each type of group indexes its members' assignments in
`_claim`, `_release` and `_count`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from konvene.errors import Errors
from konvene.groups.audit_members import AuditedMember
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

FIRST_EPOCH = 1
"""The epoch of a new group, at which nothing is assigned; its first target is for the next epoch. Also the
assignment epoch of a group whose assignment was deleted."""

JOIN = 0
"""The epoch with which a member joins, or rejoins after it was fenced."""

LEAVE = -1
"""The epoch with which a member leaves."""

LEAVE_STATIC = -2
"""The epoch with which a static member leaves temporarily, and which it has until it is back."""


class Current(Protocol):
    """The current assignment of a member, as far as it is the same in all types of groups."""

    @property
    def epoch(self) -> int: ...

    @property
    def state(self) -> object: ...

    def is_at(self, epoch: int) -> bool: ...


class Member(AuditedMember, Protocol):
    """What members of consumer, share and streams groups have in common (a protocol class)."""

    @property
    def classic(self) -> ClassicProtocolMetadata | None:
        """Return what is kept of a member that uses the classic protocol; None for others."""

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def current(self) -> Any: ...

    def having(self, current: Any) -> Self: ...

    def is_reconciled_to(self, epoch: int) -> bool: ...


M = TypeVar("M", bound=Member)


@dataclass(frozen=True, slots=True)
class ModernSoftState:
    """The soft state of a group: the part of its state that is not in its log, and is lost by a restart."""

    hashed_topics: Topics | None = None
    """The topics of which the metadata hash was last computed."""
    computing: int = 0
    """The epoch for which a target is being computed outside the core; 0: none."""
    trace: RebalanceTrace | None = None

    @property
    def basis(self) -> tuple[object, ...]:
        """Return the fields on which the response to a repeated heartbeat depends."""
        return (self.hashed_topics,)


@dataclass(slots=True, repr=False)
class ModernGroup(ABC, Generic[M]):
    """A group whose coordinator computes the assignment (KIP-848, KIP-932, KIP-1071)."""

    group_type: ClassVar[str]
    """Kafka's name of the type, as ListGroups returns it."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Hash of the topics that members subscribe to (`subscriptions.hash_of`)."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: dict[str, M] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: member id by instance id."""
    targets: dict[str, Any] = field(default_factory=dict)
    """The target assignment by member id."""
    behind: set[str] = field(default_factory=set)
    """Ids of members that are not reconciled to the assignment epoch."""
    soft: ModernSoftState = field(default_factory=ModernSoftState)
    """State of the group that is not in its log; each group type has a subclass `SoftState`."""
    reached_ms: dict[str, int] = field(default_factory=dict)
    """By member id, when the member reached its current target. Like `soft`, this is not in the log."""

    def __repr__(self) -> str:
        size = len(self.members)
        return f"<{self.group_type} {self.group_id} {self.state} epoch {self.epoch}, {size} members>"

    @property
    @abstractmethod
    def state(self) -> StrEnum:
        """Return the group's state by its name in Kafka, as in ListGroups."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    def copy(self, **indexes: Any) -> Self:
        """Return a copy that shares only immutable values, such as the members.

        `indexes`: copies of the mutable fields that only a subclass has, by name."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            targets=dict(self.targets),
            behind=set(self.behind),
            reached_ms=dict(self.reached_ms),
            **indexes,
        )

    def static_member(self, instance_id: str | None) -> M | None:
        """Return the member with this instance id; None if there is none."""
        holder = self.instances.get(instance_id) if instance_id is not None else None
        return None if holder is None else self.members[holder]

    # --- replay ---

    def put(self, member: M) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            if old.instance_id is not None and old.instance_id != member.instance_id:
                self._release_instance_id(old)
        self._count(member, 1)
        if old is None or not self._same(old, member):
            self._move(old, member)
        self._keep(member)

    def set_current(self, old: M, new: M) -> None:
        """Replace a member by `new`, which differs in its current assignment only.

        If the partitions are the same, the member is entered into the index of owners nevertheless: in a log
        that repeats records, the index may name another owner by now."""
        if self._same(old, new):
            self._claim(new)
        else:
            self._move(old, new)
        self._keep(new)

    def drop(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self._release(member)
        self._release_instance_id(member)
        self.behind.discard(member_id)

    def set_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Set the epoch for which targets were computed, and find the members that are behind it."""
        self.assignment_epoch = epoch
        self.assignment_timestamp_ms = timestamp_ms
        for member in self.members.values():
            self._update_behind(member)

    def _move(self, old: M | None, new: M) -> None:
        """Enter the assignment of `new` into the index of owners, in place of that of `old`."""
        if old is not None:
            self._release(old)
        self._claim(new)

    def _same(self, old: M, new: M) -> bool:
        """Return whether both versions of a member own the same, including the epochs of their partitions."""
        before, after = old.current, new.current
        same: bool = (
            before.assigned == after.assigned and before.pending_revocation == after.pending_revocation
        )
        return same

    @abstractmethod
    def _claim(self, member: M) -> None:
        """Enter the member into the index of owners.

        It is the owner of the partitions or tasks that it owns or has yet to revoke."""

    @abstractmethod
    def _release(self, member: M) -> None:
        """Remove the member from the index of owners, except where another member has claimed since."""

    def _count(self, member: M, delta: int) -> None:
        """Add `delta` (1 or -1) to each count that the group keeps of its members, such as subscribers."""

    def _keep(self, member: M) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._update_behind(member)

    def _update_behind(self, member: M) -> None:
        if member.is_reconciled_to(self.assignment_epoch):
            self.behind.discard(member.member_id)
        else:
            self.behind.add(member.member_id)

    def _release_instance_id(self, member: M) -> None:
        """Remove the member's instance id from the index, unless another member has taken it over."""
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]


# --- groups and members that requests name ---------------------------------------------------------

G = TypeVar("G")


def find_group(groups: Mapping[str, object], group_id: str, group_class: type[G]) -> G | None:
    """Return the group with this id if it is of this type, else None."""
    group = groups.get(group_id)
    return group if isinstance(group, group_class) else None


MG = TypeVar("MG", bound=ModernGroup[Any])


def get_or_throw_group(groups: Mapping[str, object], group_id: str, group_class: type[MG]) -> MG:
    """Return the group with this id. Raises GROUP_ID_NOT_FOUND if there is none of this type."""
    group = groups.get(group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, group_class):
        raise GroupError(
            Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {group_class.group_type} group."
        )
    return group


def get_or_throw_member(group: ModernGroup[M], member_id: str) -> M:
    """Return the member with this id. Raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise GroupError(
            Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def get_or_throw_static_member(group: ModernGroup[M], member_id: str, instance_id: str) -> M:
    """Return the member with this instance id.

    Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance id belongs to another member id."""
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


def unreleased_instance_id(member_id: str, instance_id: str, holder: Member) -> GroupError:
    """Return the error of a member that joins with the instance id of `holder`, which has not left."""
    return GroupError(
        Errors.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
        f"instance id is owned by {holder.member_id} member.",
    )


def fenced_member_epoch(group_type: str, epoch: int, known: int) -> GroupError:
    """Return the error of a heartbeat at an `epoch` that is not valid for its member.

    `known`: the member's epoch in the group."""
    comparison = "greater" if epoch > known else "smaller"
    return GroupError(
        Errors.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {comparison} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def check_size(group: ModernGroup[Any], max_size: int, member_id: str, instance_id: str | None) -> None:
    """Check that a member with these ids may join a group of at most `max_size` members.

    Existing members may always rejoin. Raises GROUP_MAX_SIZE_REACHED."""
    if instance_id in group.instances or len(group.members) < max_size or member_id in group.members:
        return
    raise GroupError(
        Errors.GROUP_MAX_SIZE_REACHED,
        f"The {group.group_type} group has reached its maximum capacity of {max_size} members.",
    )


def is_waiting(member: Member, epoch: int, assignment_epoch: int) -> bool:
    """Return whether the member does not have its whole target yet, or a new target is due.

    `epoch`, `assignment_epoch`: those of the group after the decision at hand."""
    return epoch > assignment_epoch or not member.is_reconciled_to(assignment_epoch)


# --- the response cache ----------------------------------------------------------------------------


class CachedHeartbeat:
    """A snapshot of the state on which the response to a reconciled member's heartbeat depends.

    While `is_current`, the same heartbeat gets the same response. Of the soft state only its `basis` counts;
    the trace of a rebalance, for example, affects no response."""

    __slots__ = ("assignment_epoch", "epoch", "group", "member", "soft")

    def __init__(self, group: ModernGroup[Any], member: Member) -> None:
        self.group = group
        self.member = member
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.soft = group.soft

    def is_current(self, groups: Mapping[str, object]) -> bool:
        """Return whether the group and the member are still as in the snapshot."""
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
